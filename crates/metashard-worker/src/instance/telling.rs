//! What people are told of a controller and its parents.

use std::sync::Arc;

use metashard_api::{id::ControllerKind, names::reason};
use metashard_kube::{
    events,
    informer::{View, ViewState},
};
use metashard_reconcile::{controller::Controller, object::Object, sync::Event};
use tracing::error;

use super::Instance;
use crate::{conditions::Part, key::ParentKey};

/// The logger of a controller, as Metacontroller names it.
pub(crate) fn logger(kind: ControllerKind, name: &str) -> String {
    match kind {
        ControllerKind::Composite => format!("composite.{name}"),
        ControllerKind::Decorator => format!("decorator.{name}"),
    }
}

/// A failed sync as Metacontroller logs it, which people look for.
fn sync_error(controller: &Controller, parent: &Object, why: &str) -> String {
    let (kind, name) = (parent.kind(), parent.name());
    let namespace = parent.namespace();
    match controller.kind {
        ControllerKind::Composite => {
            let slash = if namespace.is_some() { "/" } else { "" };
            let namespace = namespace.unwrap_or_default();
            format!("failed to sync {kind} '{namespace}{slash}{name}': {why}")
        }
        ControllerKind::Decorator => {
            let (of, version) = (&controller.name, parent.api_version());
            let namespace = namespace.unwrap_or_default();
            format!("failed to sync {of} '{version}:{kind}:{namespace}:{name}': {why}")
        }
    }
}

impl Instance {
    /// The logger of the controller.
    pub(crate) fn logger(&self) -> String {
        logger(self.controller.kind, &self.controller.name)
    }

    /// The text of a failed sync, for the log.
    pub(crate) fn sync_error(&self, parent: &Object, why: &str) -> String {
        sync_error(&self.controller, parent, why)
    }

    /// How each cache stands. One of related objects, which may come and go at any time, is told of in trouble only.
    pub(crate) fn watch_states(&self) -> Vec<ViewState> {
        let state = |view: &View| view.state().borrow().clone();
        let related = self.related.iter().flat_map(|related| related.views());
        let in_trouble = related
            .map(|view| state(&view))
            .filter(|state| matches!(state, ViewState::Failing(_)));
        self.views().map(state).chain(in_trouble).collect()
    }

    /// A sync panicked: people are told, as the key is tried again with a growing delay.
    pub(crate) fn panicked(&self, key: &ParentKey) {
        error!(controller = %self.controller.name, %key, "sync panicked");
        self.series.pass_panicked();
        let text = format!(
            "the sync of {key} panicked, and is tried again with a growing delay; this is an error of metashard, please report it with the log"
        );
        self.set_hook_health(Part::bad(reason::PANICKED, text));
    }

    /// Records an event on a parent, unless all that is written is only observed.
    pub(crate) fn tell(&self, parent: &Object, event: &Event) {
        if self.gate.observes() {
            return;
        }
        let event = events::Event {
            is_warning: event.is_warning,
            reason: event.reason.clone(),
            message: event.message.clone(),
        };
        let about = Arc::new(events::About::object(parent));
        self.context.recorder.record(&about, &event);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use metashard_api::resource::Resource;
    use serde_json::json;

    use super::*;

    fn resource(namespaced: bool) -> Arc<Resource> {
        Arc::new(Resource {
            group: "ex.io".to_owned(),
            version: "v1".to_owned(),
            plural: "foos".to_owned(),
            kind: "Foo".to_owned(),
            namespaced,
            has_status: true,
        })
    }

    fn controller(kind: ControllerKind) -> Controller {
        let mut object = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": kind.as_str(),
            "metadata": { "name": "web", "uid": "c" },
            "spec": { "hooks": { "sync": { "webhook": { "url": "http://hook/" } } } },
        });
        let foos = json!({ "apiVersion": "ex.io/v1", "resource": "foos" });
        let lookup = |_: &str, _: &str| Some(resource(true));
        if kind == ControllerKind::Composite {
            object["spec"]["parentResource"] = foos;
            let raw = Bytes::from(object.to_string());
            Controller::compile(&serde_json::from_value(object).unwrap(), &raw, &lookup).unwrap()
        } else {
            object["spec"]["resources"] = json!([foos]);
            let raw = Bytes::from(object.to_string());
            let object = serde_json::from_value(object).unwrap();
            Controller::compile_decorator(&object, &raw, &lookup).unwrap()
        }
    }

    fn parent(namespace: Option<&str>) -> Object {
        let metadata =
            json!({ "name": "p", "namespace": namespace, "uid": "u", "resourceVersion": "1" });
        let object = json!({ "apiVersion": "ex.io/v1", "kind": "Foo", "metadata": metadata });
        Object::parse(object.to_string()).unwrap()
    }

    #[test]
    fn a_failed_sync_is_logged_in_metacontrollers_words() {
        let [composite, decorator] =
            [ControllerKind::Composite, ControllerKind::Decorator].map(controller);
        let text = |of: &Controller, namespace| sync_error(of, &parent(namespace), "why");

        assert_eq!(
            text(&composite, Some("ns")),
            "failed to sync Foo 'ns/p': why"
        );
        assert_eq!(text(&composite, None), "failed to sync Foo 'p': why");
        assert_eq!(
            text(&decorator, Some("ns")),
            "failed to sync web 'ex.io/v1:Foo:ns:p': why"
        );
        assert_eq!(
            text(&decorator, None),
            "failed to sync web 'ex.io/v1:Foo::p': why"
        );
    }
}
