//! What people's tools write, in the name of whoever runs them: no shard, no authority, and so nothing of a controller's.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use metashard_api::resource::Resource;
use metashard_reconcile::object::Object;
use serde_json::Value;

use super::{Call, Clients, object};
use crate::{error::Error, identity::Identity};

impl Clients {
    /// Creates an object.
    ///
    /// # Errors
    ///
    /// When the API server cannot be reached or refuses; a conflict if there is one of its name.
    pub async fn create(
        &self,
        identity: &Identity,
        resource: &Resource,
        namespace: Option<&str>,
        body: &Value,
    ) -> Result<Arc<Object>, Error> {
        let target = resource.collection_path(namespace);
        let call = Call::new(identity, Method::POST, target).body(Bytes::from(body.to_string()));
        self.0.limit.admit(&self.0.clock).await;
        object(&self.0.general.call(call).await?)
    }

    /// Merges `patch` into an object, if it still is as `seen`.
    ///
    /// # Errors
    ///
    /// When the API server cannot be reached or refuses; a conflict if the object is another by now.
    pub async fn patch(
        &self,
        identity: &Identity,
        resource: &Resource,
        seen: &Object,
        mut patch: Value,
    ) -> Result<Arc<Object>, Error> {
        patch["metadata"]["uid"] = seen.uid().into();
        patch["metadata"]["resourceVersion"] = seen.resource_version().into();
        let target = resource.object_path(seen.namespace(), seen.name());
        let call = Call::new(identity, Method::PATCH, target)
            .content_type("application/merge-patch+json")
            .body(Bytes::from(patch.to_string()));
        self.0.limit.admit(&self.0.clock).await;
        object(&self.0.general.call(call).await?)
    }
}
