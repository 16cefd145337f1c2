//! The requests of a feed: what a list and a watch ask for.

use std::time::Duration;

use crate::{
    client::{Call, encode_query},
    informer::ViewKey,
};

/// The head of a watch's answer comes at once, that of a streaming list when the API server's cache is new enough.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// A page may be large.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Objects on one page, as client-go asks for.
const PAGE_SIZE: &str = "500";
/// Shortest life of a watch. A watch is authorised once, so it must end in time; load balancers forget quiet
/// connections after four minutes and more.
const LEAST_LIFE: u64 = 200;
/// The lives are spread over so many seconds more, so that watches opened together do not end together.
const LIFE_SPREAD: f64 = 30.0;

const WHOLE: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// What a watch begins with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form<'a> {
    /// The present objects, then what happens from there on.
    StreamingList,
    /// What happened after this resourceVersion.
    From(&'a str),
}

/// Makes the requests of one view.
pub(super) struct Requests {
    key: ViewKey,
}

impl Requests {
    pub(super) fn new(key: ViewKey) -> Self {
        Self { key }
    }

    /// A watch, and how long it will last. `random` is drawn evenly from 0 to 1.
    pub(super) fn watch(&self, form: Form<'_>, random: f64) -> (Call<'_>, Duration) {
        let life =
            Duration::from_secs(LEAST_LIFE) + Duration::from_secs_f64(LIFE_SPREAD).mul_f64(random);
        let mut target = self.collection();
        encode_query(&mut target, "watch", "true");
        encode_query(&mut target, "allowWatchBookmarks", "true");
        encode_query(&mut target, "timeoutSeconds", &life.as_secs().to_string());
        match form {
            // Without a resourceVersion the list is at least as new as the moment of the request.
            Form::StreamingList => {
                encode_query(&mut target, "sendInitialEvents", "true");
                encode_query(&mut target, "resourceVersionMatch", "NotOlderThan");
            }
            Form::From(position) => encode_query(&mut target, "resourceVersion", position),
        }
        let accept = if self.key.metadata_only {
            METADATA
        } else {
            WHOLE
        };
        (
            Call::get(&self.key.identity, target)
                .accept(accept)
                .within(OPEN_TIMEOUT),
            life,
        )
    }

    /// One page of a list that is at least as new as its first request; all of it in one piece if `whole`.
    pub(super) fn page(&self, next: Option<&str>, whole: bool) -> Call<'_> {
        let mut target = self.collection();
        if !whole {
            encode_query(&mut target, "limit", PAGE_SIZE);
        }
        if let Some(next) = next {
            encode_query(&mut target, "continue", next);
        }
        let accept = if self.key.metadata_only {
            METADATA_LIST
        } else {
            WHOLE
        };
        Call::get(&self.key.identity, target)
            .accept(accept)
            .within(PAGE_TIMEOUT)
    }

    fn collection(&self) -> String {
        let mut target = self
            .key
            .resource
            .collection_path(self.key.namespace.as_deref());
        if let Some(selector) = &self.key.selector {
            encode_query(&mut target, "labelSelector", selector);
        }
        if let Some(name) = &self.key.name {
            encode_query(
                &mut target,
                "fieldSelector",
                &format!("metadata.name={name}"),
            );
        }
        target
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metashard_api::{id::ControllerKind, resource::Resource};

    use super::*;
    use crate::identity::Identity;

    #[test]
    fn a_watch_ends_before_anything_on_the_way_forgets_it() {
        let resource = Arc::new(Resource::of_controllers(ControllerKind::Composite));
        let requests = Requests::new(ViewKey::new(Identity::process(), resource));

        for random in [0.0, 0.5, 1.0] {
            let (_, life) = requests.watch(Form::StreamingList, random);

            assert!(life < Duration::from_mins(4), "{life:?}");
        }
    }
}
