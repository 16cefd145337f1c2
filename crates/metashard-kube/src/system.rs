//! The few objects of the system namespace that are no Lease and no map: the namespace itself, and Secrets.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::json;

use crate::{
    client::{Call, Clients},
    error::{Cause, Error},
    identity::Identity,
};

/// Content of a Secret: keys and bytes.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// Creates the namespace `name` if there is none. True: it was created, so nothing can ever have been in it.
///
/// # Errors
///
/// When there is none and it cannot be created. Where only the right to read it is missing, it is taken to be there.
pub async fn ensure_namespace(clients: &Clients, name: &str) -> Result<bool, Error> {
    let identity = Identity::process();
    let found = clients
        .general()
        .call(Call::get(&identity, format!("/api/v1/namespaces/{name}")))
        .await;
    match found {
        Ok(_) => return Ok(false),
        Err(error) if error.is_forbidden() => return Ok(false),
        Err(error) if !error.is_not_found() => return Err(error),
        Err(_) => {}
    }
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let call = Call::new(&identity, Method::POST, "/api/v1/namespaces".to_owned());
    match clients
        .general()
        .call(call.body(Bytes::from(body.to_string())))
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a Secret; `None` if there is none.
///
/// # Errors
///
/// When the API server cannot be reached or refuses.
pub async fn read_secret(
    clients: &Clients,
    namespace: &str,
    name: &str,
) -> Result<Option<SecretData>, Error> {
    let identity = Identity::process();
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let answer = match clients.general().call(Call::get(&identity, path)).await {
        Err(error) if error.is_not_found() => return Ok(None),
        answer => answer?,
    };
    let secret: Secret = serde_json::from_slice(&answer.body).map_err(|error| Error {
        method: answer.method,
        path: answer.path,
        cause: Cause::Answer(error.to_string()),
    })?;
    let data = secret.data.unwrap_or_default();
    Ok(Some(
        data.into_iter()
            .map(|(key, ByteString(value))| (key, value))
            .collect(),
    ))
}

/// Creates a Secret. False: there was one already, made by another; read it.
///
/// # Errors
///
/// When the API server cannot be reached or refuses.
pub async fn create_secret(
    clients: &Clients,
    namespace: &str,
    name: &str,
    data: SecretData,
) -> Result<bool, Error> {
    let identity = Identity::process();
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(
            data.into_iter()
                .map(|(key, value)| (key, ByteString(value)))
                .collect(),
        ),
        ..Secret::default()
    };
    let encode = |error: serde_json::Error| Error {
        method: Method::POST,
        path: path.clone(),
        cause: Cause::Answer(error.to_string()),
    };
    let body = Bytes::from(serde_json::to_vec(&secret).map_err(encode)?);
    match clients
        .general()
        .call(Call::new(&identity, Method::POST, path).body(body))
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}
