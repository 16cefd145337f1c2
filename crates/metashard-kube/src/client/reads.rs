//! Reads for people's tools: lists, and documents of the API server that are no objects.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use metashard_api::resource::Resource;
use metashard_reconcile::object::Object;
use serde::{Deserialize, de::IgnoredAny};

use super::{Answer, Call, Clients, encode_query};
use crate::{
    error::{Cause, Error},
    identity::Identity,
    informer::Page,
};

/// Objects asked for at once.
const PAGE: &str = "500";

/// A page that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A Pod that takes longer to answer is given up.
const POD_TIMEOUT: Duration = Duration::from_secs(10);

/// A port of a Pod, as the API server's proxy reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPort {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port, on which it speaks HTTP.
    pub port: u16,
}

/// A list, as far as its length goes.
#[derive(Deserialize, Default)]
struct Counted {
    #[serde(default)]
    metadata: Rest,
    #[serde(default)]
    items: Vec<IgnoredAny>,
}

#[derive(Deserialize, Default)]
struct Rest {
    #[serde(rename = "remainingItemCount")]
    rest: Option<usize>,
    #[serde(rename = "continue", default)]
    next: String,
}

impl Clients {
    /// Lists objects from the API server, page by page: those of `namespace`, or of all namespaces with `None`.
    /// `selector`: which labels they must have, as text; empty: any.
    ///
    /// # Errors
    ///
    /// When the API server cannot be reached or refuses.
    pub async fn list(
        &self,
        identity: &Identity,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Arc<Object>>, Error> {
        let mut objects = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut target = resource.collection_path(namespace);
            encode_query(&mut target, "limit", PAGE);
            if !selector.is_empty() {
                encode_query(&mut target, "labelSelector", selector);
            }
            if let Some(next) = &next {
                encode_query(&mut target, "continue", next);
            }
            self.0.limit.admit(&self.0.clock).await;
            let call = Call::get(identity, target).within(TIMEOUT);
            let answer = self.0.general.call(call).await?;
            let page =
                Page::parse(&answer.body).map_err(|error| odd(&answer, error.to_string()))?;
            for object in page.objects(resource) {
                let object = object.map_err(|error| odd(&answer, error.to_string()))?;
                objects.push(Arc::new(object));
            }
            match page.next {
                Some(token) => next = Some(token),
                None => return Ok(objects),
            }
        }
    }

    /// How many objects [`Self::list`] would give; fewer of them are sent where the API server counts itself.
    ///
    /// # Errors
    ///
    /// As [`Self::list`].
    pub async fn count(
        &self,
        identity: &Identity,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<usize, Error> {
        if selector.is_empty() {
            let mut target = resource.collection_path(namespace);
            encode_query(&mut target, "limit", "1");
            let body = self.get(identity, target).await?;
            let list: Counted = serde_json::from_slice(&body).unwrap_or_default();
            match (list.metadata.rest, list.metadata.next.is_empty()) {
                (Some(rest), _) => return Ok(list.items.len() + rest),
                (None, true) => return Ok(list.items.len()),
                (None, false) => {}
            }
        }
        let all = self.list(identity, resource, namespace, selector).await?;
        Ok(all.len())
    }

    /// The body that a Pod answers a GET of this path and query with: the API server passes on both, and `header`.
    ///
    /// # Errors
    ///
    /// When the API server cannot be reached or refuses, or the Pod does.
    pub async fn ask_pod(
        &self,
        identity: &Identity,
        pod: &PodPort,
        target: &str,
        (name, value): (HeaderName, HeaderValue),
    ) -> Result<Bytes, Error> {
        let PodPort {
            namespace,
            name: pod,
            port,
        } = pod;
        let target = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{target}");
        let call = Call::get(identity, target).header(name, value);
        self.0.limit.admit(&self.0.clock).await;
        Ok(self.0.general.call(call.within(POD_TIMEOUT)).await?.body)
    }

    /// The body that a GET of this path and query is answered with.
    ///
    /// # Errors
    ///
    /// When the API server cannot be reached or refuses.
    pub async fn get(&self, identity: &Identity, target: String) -> Result<Bytes, Error> {
        let call = Call::get(identity, target).within(TIMEOUT);
        self.0.limit.admit(&self.0.clock).await;
        Ok(self.0.general.call(call).await?.body)
    }
}

fn odd(answer: &Answer, text: String) -> Error {
    Error {
        method: answer.method.clone(),
        path: answer.path.clone(),
        cause: Cause::Answer(text),
    }
}
