//! Where a controller makes use of something that Metacontroller does wrong, or otherwise.

use serde_json::Value;

use super::Peer;
use crate::resources::Resources;

/// Methods that update one child after the other.
const ROLLING: [&str; 2] = ["RollingRecreate", "RollingInPlace"];

/// One difference, and whether a controller meets it.
struct Row {
    meets: fn(&Seen<'_>) -> bool,
    what: &'static str,
}

/// What is looked at.
struct Seen<'a> {
    controller: &'a Value,
    spec: &'a Value,
    resources: &'a Resources,
    is_ssa: bool,
}

/// All of them, in the order in which they are told. Behaviour that every controller shares is in the guide.
const ROWS: &[Row] = &[
    Row {
        meets: |seen| seen.methods().any(|it| ROLLING.contains(&it)) && seen.is_composite(),
        what: "rolling updates go on after the first child, and a hook without a status does not stop them",
    },
    Row {
        meets: |seen| seen.methods().any(|it| ROLLING.contains(&it)) && !seen.is_composite(),
        what: "rolling methods of attachments mean Recreate and InPlace, as before, and a condition says so",
    },
    Row {
        meets: |seen| seen.methods().any(|it| it.ends_with("Recreate")) && seen.is_ssa,
        what: "under server-side apply a child that differs is recreated; before, some kinds ended in an error",
    },
    Row {
        meets: |seen| {
            seen.spec["hooks"]["preUpdateChild"].is_object()
                || seen.spec["hooks"]["postUpdateChild"].is_object()
        },
        what: "preUpdateChild and postUpdateChild are never called, as before; a condition says so now",
    },
    Row {
        meets: |seen| {
            seen.webhooks().any(|it| {
                it["url"].is_null()
                    && it["service"]["port"].is_null()
                    && it["service"]["protocol"]
                        .as_str()
                        .is_some_and(|it| it.eq_ignore_ascii_case("https"))
            })
        },
        what: "a Service that is reached by https without a port is called at port 443, not 80: give the port if it is 80",
    },
    Row {
        meets: |seen| seen.webhooks().any(|it| it["etag"]["enabled"] == true),
        what: "answers that are kept by ETag are kept for each parent and revision alone",
    },
    Row {
        meets: |seen| seen.spec["hooks"]["finalize"]["webhook"].is_object(),
        what: "when the controller is deleted, its finalizer is taken from the parents; before, it stayed",
    },
    Row {
        meets: |seen| seen.spec["hooks"]["customize"]["webhook"].is_object(),
        what: "a namespaced parent sees related objects of its own namespace only, also where a rule names objects without one",
    },
    Row {
        meets: |seen| seen.spec["generateSelector"] == true,
        what: "a child that lost its label controller-uid gets it back; before, it was given up and never adopted again",
    },
    Row {
        meets: |seen| {
            seen.spec["resyncPeriodSeconds"]
                .as_i64()
                .is_some_and(|it| it >= 1800)
        },
        what: "resyncPeriodSeconds holds although it is longer than the interval of cache flushes",
    },
    Row {
        meets: |seen| seen.has_repeated_children(),
        what: "a kind of children is listed twice: the last entry counts",
    },
    Row {
        meets: |seen| {
            seen.webhooks().any(|it| {
                it["authorization"].is_object()
                    || it["basicAuth"].is_object()
                    || it["clientTLS"].is_object()
                    || it["caBundle"].is_object()
            }) || seen.spec["endpointConfigs"].is_array()
        },
        what: "certificates and credentials are read again when they change; before, a restart was needed",
    },
    Row {
        meets: |seen| seen.is_ssa,
        what: "an existing object without an owner is not taken over, under server-side apply either",
    },
    Row {
        meets: |seen| seen.has_built_in_parents(),
        what: "parents of a built-in kind are served; before, they were not",
    },
];

/// What will differ for a controller.
pub(super) fn of(controller: &Value, resources: &Resources, peer: Option<&Peer>) -> Vec<String> {
    let strategy = peer.and_then(|it| it.flag("apply-strategy"));
    let seen = Seen {
        controller,
        spec: &controller["spec"],
        resources,
        is_ssa: strategy.as_deref() == Some("server-side-apply"),
    };
    let met = ROWS.iter().filter(|row| (row.meets)(&seen));
    met.map(|row| row.what.to_owned()).collect()
}

impl<'a> Seen<'a> {
    fn is_composite(&self) -> bool {
        self.controller["kind"] == "CompositeController"
    }

    fn children(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["childResources", "attachments"]
            .into_iter()
            .filter_map(move |field| spec[field].as_array())
            .flatten()
    }

    fn methods(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.children()
            .filter_map(|it| it["updateStrategy"]["method"].as_str())
    }

    fn webhooks(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let hooks = &self.spec["hooks"];
        ["sync", "finalize", "customize"]
            .into_iter()
            .map(move |hook| &hooks[hook]["webhook"])
            .filter(|it| it.is_object())
    }

    fn has_repeated_children(&self) -> bool {
        let mut seen = std::collections::BTreeSet::new();
        let key = |it: &Value| (it["apiVersion"].to_string(), it["resource"].to_string());
        !self.children().all(|it| seen.insert(key(it)))
    }

    fn has_built_in_parents(&self) -> bool {
        let parent = &self.spec["parentResource"];
        let text = |field: &str| parent[field].as_str().unwrap_or_default();
        let found = self.resources.lookup(text("apiVersion"), text("resource"));
        found.is_some_and(|it| !it.group.contains('.') || it.group.ends_with(".k8s.io"))
    }
}
