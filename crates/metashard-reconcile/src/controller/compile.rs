//! From a controller object to what reconciling needs, or to findings.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::{
    endpoint::Demand,
    hook::{self, Mode, Version},
    id::ControllerUid,
    names,
    resource::Resource,
    v1alpha1::{
        Adoption, DeletionPolicy, UpdateMethod,
        composite::{ChildResource, CompositeController, CompositeControllerSpec},
        decorator::DecoratorController,
        webhook::{self, EndpointConfig},
    },
    validate::{self, Finding},
};
use xxhash_rust::xxh3::Xxh3;

use super::{
    Apply, ChildRule, Controller, Edition, Error, History, Hook, ParentRule, Unserved,
    UpdateStrategy, parents::Parents, source::Source,
};
use crate::request::Frame;

pub(crate) type Lookup<'a> = &'a dyn Fn(&str, &str) -> Option<Arc<Resource>>;

pub(super) fn composite(
    object: &CompositeController,
    raw: &Bytes,
    lookup: Lookup<'_>,
) -> Result<Controller, Error> {
    let spec = Source::composite(object);
    let notes = check(&spec, validate::composite(object))?;
    let parents = Parents::composite(&object.spec, lookup)?;
    let mut controller = compile(spec, notes, parents, raw, lookup)?;
    controller.history = history(&object.spec, &controller)?;
    Ok(controller)
}

pub(super) fn decorator(
    object: &DecoratorController,
    raw: &Bytes,
    lookup: Lookup<'_>,
) -> Result<Controller, Error> {
    let spec = Source::decorator(object);
    let notes = check(&spec, validate::decorator(object))?;
    let parents = Parents::decorator(&object.spec, lookup)?;
    compile(spec, notes, parents, raw, lookup)
}

fn compile(
    spec: Source<'_>,
    mut notes: Vec<Finding>,
    parents: Parents,
    raw: &Bytes,
    lookup: Lookup<'_>,
) -> Result<Controller, Error> {
    let rules = Rules::resolve(&spec, lookup)?;
    let (Some(uid), Some(name)) = (spec.uid, spec.name) else {
        return Err(Error::Unreadable("it has no uid or no name".to_owned()));
    };
    let outer: Vec<_> = rules
        .served
        .iter()
        .map(|rule| hook::outer_key(&rule.resource))
        .collect();
    let edition = Edition::of(raw);
    notes.extend(parents.notes);
    let mut missing = parents.missing;
    missing.extend(rules.missing);
    Ok(Controller {
        kind: spec.kind,
        uid: ControllerUid::new(uid),
        finalizer: names::finalizer(spec.kind, name),
        name: name.to_owned(),
        edition,
        fingerprint: fingerprint(uid, edition, &parents.served, &rules.served),
        parents: parents.served,
        generate_selector: spec.generate_selector,
        children: rules.served,
        history: None,
        sync: callable("sync", spec.hooks.sync, spec.endpoint_configs),
        finalize: callable("finalize", spec.hooks.finalize, spec.endpoint_configs),
        customize: callable("customize", spec.hooks.customize, spec.endpoint_configs),
        resync_period: spec.resync_period_seconds.map(resync_period),
        paused: spec.paused,
        apply: Apply::default(),
        missing,
        notes,
        missing_children: rules.missing_children,
        lost: Vec::new(),
        frame: Frame::new(spec.kind, raw, outer)
            .map_err(|error| Error::Unreadable(error.to_string()))?,
    })
}

/// Splits findings into those that refuse and those that only tell.
fn check(spec: &Source<'_>, mut findings: Vec<Finding>) -> Result<Vec<Finding>, Error> {
    let hooks = &spec.hooks;
    if hooks
        .finalize
        .as_ref()
        .is_some_and(|hook| hook.webhook.is_some())
    {
        // A controller that only finalizes is a controller.
        findings.retain(|finding| finding.field != "spec.hooks.sync");
    }
    if hooks
        .finalize
        .as_ref()
        .is_some_and(|hook| hook.webhook.is_none())
    {
        findings.push(Finding::invalid(
            "spec.hooks.finalize.webhook",
            "a finalize hook that cannot be called keeps parents from being deleted",
            "give it a webhook, or remove spec.hooks.finalize",
        ));
    }
    not_served(spec, &mut findings);
    let (refusing, notes): (Vec<_>, Vec<_>) = findings.into_iter().partition(Finding::refuses);
    if refusing.is_empty() {
        Ok(notes)
    } else {
        Err(Error::Refused(refusing))
    }
}

/// What the API has and this version does not do.
fn not_served(spec: &Source<'_>, found: &mut Vec<Finding>) {
    let mut refuse = |field: String, what: &str, fix: &str| {
        found.push(Finding::not_supported(
            field,
            format!("{what}: not served yet"),
            fix,
        ));
    };
    if spec.service_account_ref.is_some() {
        refuse(
            "spec.serviceAccountRef".to_owned(),
            "acting as a ServiceAccount",
            "remove it: the controller then acts as the process",
        );
    }
}

/// How revisions are kept, if children are moved one at a time.
fn history(
    spec: &CompositeControllerSpec,
    controller: &Controller,
) -> Result<Option<History>, Error> {
    let mut rules = controller.children.iter();
    if rules.all(|rule| rule.rolling.is_none()) {
        return Ok(None);
    }
    let mut parents = controller.parents.iter();
    if let Some(parent) = parents.find(|parent| !parent.resource.namespaced) {
        return Err(Error::Refused(vec![Finding::not_supported(
            "spec.parentResource",
            format!(
                "rolling updates keep ControllerRevisions in the namespace of the parent, and {} have none",
                parent.resource.plural
            ),
            "use InPlace, Recreate or OnDelete, or a namespaced parent",
        )]));
    }
    let given = spec.parent_resource.revision_history.as_ref();
    let given = given.map(|it| it.field_paths.clone()).unwrap_or_default();
    Ok(Some(History {
        resource: Arc::new(Resource::of_revisions()),
        paths: if given.is_empty() {
            vec!["spec".to_owned()]
        } else {
            given
        },
    }))
}

pub(super) fn not_found(field: &str, version: &str, plural: &str) -> Finding {
    Finding::invalid(
        field,
        format!("discovery: can't find resource {plural} in apiVersion {version}"),
        "install its CustomResourceDefinition, or correct apiVersion and resource",
    )
}

/// The kinds of children, as far as they are served.
#[derive(Default)]
struct Rules {
    served: Vec<ChildRule>,
    missing: Vec<Finding>,
    missing_children: Vec<Unserved>,
}

impl Rules {
    fn resolve(spec: &Source<'_>, lookup: Lookup<'_>) -> Result<Self, Error> {
        let mut rules = Self::default();
        let mut refused = Vec::new();
        for (index, child) in spec.child_resources.iter().enumerate() {
            let field = spec.child_field(index);
            let Some(resource) = lookup(&child.api_version, &child.resource) else {
                rules
                    .missing
                    .push(not_found(&field, &child.api_version, &child.resource));
                rules.missing_children.push(Unserved {
                    api_version: child.api_version.clone(),
                    plural: child.resource.clone(),
                });
                continue;
            };
            let same = |rule: &ChildRule| {
                rule.resource.group == resource.group && rule.resource.kind == resource.kind
            };
            match rules.served.iter().position(same) {
                Some(at)
                    if rules
                        .served
                        .get(at)
                        .is_some_and(|it| it.resource == resource) =>
                {
                    // Listed twice: the last entry counts.
                    rules.served.remove(at);
                }
                Some(_) => refused.push(Finding::invalid(
                    &field,
                    format!("{} is listed before, in another version", resource.kind),
                    "keep one version of each kind",
                )),
                None => {}
            }
            rules.served.push(child_rule(child, resource));
        }
        if refused.is_empty() {
            Ok(rules)
        } else {
            Err(Error::Refused(refused))
        }
    }
}

fn child_rule(child: &ChildResource, resource: Arc<Resource>) -> ChildRule {
    let method = child.update_method();
    let update = match method {
        UpdateMethod::Recreate | UpdateMethod::RollingRecreate => UpdateStrategy::Recreate,
        UpdateMethod::InPlace | UpdateMethod::RollingInPlace => UpdateStrategy::InPlace,
        // An unknown one was refused before.
        UpdateMethod::OnDelete | UpdateMethod::Unknown => UpdateStrategy::OnDelete,
    };
    let checks = child.update_strategy.as_ref();
    let checks = checks.and_then(|it| it.status_checks.clone());
    ChildRule {
        resource,
        update,
        adopts: child.adoption != Some(Adoption::Never),
        takes_over: child.adoption == Some(Adoption::Force),
        orphans: child.deletion_policy == Some(DeletionPolicy::Orphan),
        rolling: method
            .is_rolling()
            .then(|| checks.unwrap_or_default().conditions),
    }
}

fn callable(name: &str, hook: Option<webhook::Hook>, configs: &[EndpointConfig]) -> Option<Hook> {
    let hook = hook?;
    let (version, mode) = (Version::of(&hook)?, Mode::of(&hook)?);
    let webhook = hook.webhook?;
    let field = format!("spec.hooks.{name}.webhook");
    Some(Hook {
        version,
        mode,
        security: Demand::of(&field, &webhook, configs),
        webhook,
    })
}

/// Less than a second counts as one.
fn resync_period(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1))
}

fn fingerprint(uid: &str, edition: Edition, parents: &[ParentRule], rules: &[ChildRule]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(uid.as_bytes());
    hash.update(&edition.number().to_le_bytes());
    let parents = parents.iter().map(|rule| &rule.resource);
    for resource in parents.chain(rules.iter().map(|rule| &rule.resource)) {
        hash.update(resource.to_string().as_bytes());
        hash.update(&[0, u8::from(resource.namespaced)]);
    }
    hash.digest()
}
