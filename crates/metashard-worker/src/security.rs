//! The certificates and credentials of one controller's hooks: follows the objects that hold them, and puts what is new
//! into use.
//!
//! Level-based: [`Security::settle`] compares what the views show with what was last put into use.

use std::{collections::BTreeSet, sync::Arc, time::SystemTime};

use metashard_api::{endpoint::Source, names::reason};
use metashard_hook::{Certificate, Endpoint, Found};
use metashard_kube::{
    identity::Identity,
    informer::{Informers, Subscriber, View, ViewKey, ViewState},
};
use metashard_reconcile::object::Object;
use parking_lot::Mutex;

use crate::conditions::Part;

/// Days before the end of a certificate at which people are told, each once.
const WARN_DAYS: [i64; 4] = [30, 7, 1, -1];

/// The certificates and credentials of one controller's hooks.
#[derive(Debug)]
pub(crate) struct Security {
    views: Vec<(Source, View)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was last read, in the order of the views.
    seen: Option<Vec<Seen>>,
    trouble: Option<Trouble>,
    is_ready: bool,
    /// The trouble that people were told of.
    told: Option<Trouble>,
    /// How many of [`WARN_DAYS`] people were told of, and for which certificate.
    warned: Vec<(Certificate, usize)>,
}

/// What a view shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// It has not been listed yet.
    Nothing,
    Missing,
    /// An object: its uid and resourceVersion.
    Version(Box<str>, Box<str>),
    Unreadable(Arc<str>),
}

/// Why something could not be put into use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// For people: hook, field, object, key and fix.
    pub(crate) message: String,
    /// Whether every hook has something older to be called with.
    pub(crate) is_ready: bool,
}

impl Security {
    /// Opens a view of each object that holds something for `endpoints`, with the rights of `identity`; `subscriber` is
    /// told of changes. `None` if there is nothing to follow or to put into use.
    pub(crate) fn open<'a>(
        endpoints: impl Iterator<Item = &'a Endpoint> + Clone,
        identity: &Identity,
        informers: &Informers,
        subscriber: &Arc<dyn Subscriber>,
    ) -> Option<Self> {
        if endpoints.clone().all(Endpoint::is_ready) {
            return None;
        }
        let sources: BTreeSet<Source> = endpoints.flat_map(Endpoint::sources).collect();
        let views = sources
            .into_iter()
            .map(|source| {
                let key = ViewKey::new(identity.clone(), Arc::new(source.kind.resource()))
                    .in_namespace(source.namespace.as_str())
                    .named(source.name.as_str());
                let view = informers.open(key, Some(Arc::clone(subscriber)));
                (source, view)
            })
            .collect();
        Some(Self {
            views,
            state: Mutex::default(),
        })
    }

    /// The views of the objects that hold something.
    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        self.views.iter().map(|(_, view)| view)
    }

    /// Puts what is new into use. Does nothing if nothing has changed since the last call.
    pub(crate) fn settle<'a>(&self, endpoints: impl Iterator<Item = &'a Endpoint>) {
        let found: Vec<_> = self
            .views
            .iter()
            .map(|(source, view)| look(source, view))
            .collect();
        let seen: Vec<_> = found.iter().map(|(_, seen)| seen.clone()).collect();
        let mut state = self.state.lock();
        if state.seen.as_ref() == Some(&seen) || seen.contains(&Seen::Nothing) {
            return;
        }
        let find = |wanted: &Source| {
            let at = self.views.iter().position(|(source, _)| source == wanted);
            match at.and_then(|at| found.get(at)) {
                Some((Some(object), _)) => Found::Object(object.bytes()),
                Some((None, Seen::Unreadable(why))) => Found::Unreadable(why),
                Some(_) | None => Found::Missing,
            }
        };
        let mut trouble = None;
        let mut is_ready = true;
        for endpoint in endpoints {
            if let Err(finding) = endpoint.secure(&find) {
                let hook = endpoint.hook().as_str();
                trouble.get_or_insert_with(|| {
                    format!("can't resolve endpoint config for {hook} hook: {finding}")
                });
            }
            is_ready &= endpoint.is_ready();
        }
        state.seen = Some(seen);
        state.is_ready = is_ready;
        state.trouble = trouble.map(|message| Trouble { message, is_ready });
    }

    /// What keeps the controller from running; `None` if nothing does.
    pub(crate) fn refusal(&self) -> Option<Part> {
        let state = self.state.lock();
        if state.is_ready {
            return None;
        }
        Some(match &state.trouble {
            Some(trouble) => Part::bad(reason::ENDPOINT_NOT_RESOLVED, trouble.message.clone()),
            None => Part::unknown(
                reason::SYNCING,
                "certificates and credentials of hooks have not been read yet",
            ),
        })
    }

    /// What is wrong with what a running controller's hooks are to be called with.
    pub(crate) fn degradation(&self) -> Option<Part> {
        let state = self.state.lock();
        let trouble = state.trouble.as_ref().filter(|trouble| trouble.is_ready)?;
        Some(Part::bad(reason::ENDPOINT_NOT_RESOLVED, trouble.in_use()))
    }

    /// The trouble, if it is another than the one that this returned last.
    pub(crate) fn news(&self) -> Option<Trouble> {
        let state = &mut *self.state.lock();
        if state.told == state.trouble {
            return None;
        }
        state.told.clone_from(&state.trouble);
        state.told.clone()
    }

    /// What has to be told of certificates of `endpoints` that end soon, as of `wall`; the metrics are brought up to date.
    pub(crate) fn expiries<'a>(
        &self,
        endpoints: impl Iterator<Item = &'a Endpoint>,
        wall: SystemTime,
    ) -> Vec<String> {
        let mut certificates = Vec::new();
        for endpoint in endpoints {
            endpoint.show_days_left(wall);
            certificates.extend(endpoint.certificates());
        }
        let warned = &mut self.state.lock().warned;
        warned.retain(|(certificate, _)| certificates.contains(certificate));
        let mut warnings = Vec::new();
        for certificate in certificates {
            let days = certificate.days_left(wall);
            let passed = WARN_DAYS.iter().filter(|limit| days <= **limit).count();
            let known = warned.iter_mut().find(|(it, _)| *it == certificate);
            match known {
                Some((_, told)) if *told >= passed => {}
                Some((_, told)) => {
                    *told = passed;
                    warnings.push(text_of(&certificate, days));
                }
                None => {
                    if passed > 0 {
                        warnings.push(text_of(&certificate, days));
                    }
                    warned.push((certificate, passed));
                }
            }
        }
        warnings
    }
}

impl Trouble {
    /// The message of a controller that runs on with what it had.
    pub(crate) fn in_use(&self) -> String {
        format!("{}; what was read before is still in use", self.message)
    }
}

/// What people should know of the certificate among those of `endpoints` that ends first, if that is soon.
pub(crate) fn soonest_end<'a>(
    endpoints: impl Iterator<Item = &'a Endpoint>,
    wall: SystemTime,
) -> Option<String> {
    let certificates = endpoints.flat_map(Endpoint::certificates);
    let soonest = certificates.min_by_key(|certificate| certificate.not_after)?;
    let days = soonest.days_left(wall);
    let is_soon = WARN_DAYS.first().is_some_and(|limit| days <= *limit);
    is_soon.then(|| text_of(&soonest, days))
}

fn text_of(certificate: &Certificate, days: i64) -> String {
    let when = match days {
        ..0 => "has ended".to_owned(),
        0 => "ends within a day".to_owned(),
        1 => "ends in 1 day".to_owned(),
        days => format!("ends in {days} days"),
    };
    format!(
        "{}: the {} in {} {when}; replace it",
        certificate.field,
        certificate.role.title(),
        certificate.place
    )
}

fn look(source: &Source, view: &View) -> (Option<Arc<Object>>, Seen) {
    let state = view.state().borrow().clone();
    match state {
        ViewState::Opening => return (None, Seen::Nothing),
        ViewState::Failing(trouble) if !trouble.synced => {
            return (None, Seen::Unreadable(trouble.message));
        }
        // What was seen last may still be so.
        ViewState::Live | ViewState::Failing(_) => {}
    }
    match view.get(Some(&source.namespace), &source.name) {
        Some(object) => {
            let seen = Seen::Version(object.uid().into(), object.resource_version().into());
            (Some(object), seen)
        }
        None => (None, Seen::Missing),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metashard_hook::Role;

    use super::*;

    #[test]
    fn an_end_is_told_in_days() {
        let certificate = Certificate {
            role: Role::Client,
            field: "spec.hooks.sync.webhook.clientTLS.secretRef".to_owned(),
            place: "key \"tls.crt\" of Secret ns/s".to_owned(),
            not_after: SystemTime::UNIX_EPOCH + Duration::from_hours(100 * 24),
        };
        let text = |day: u64| {
            let wall = SystemTime::UNIX_EPOCH + Duration::from_hours(day * 24);
            text_of(&certificate, certificate.days_left(wall))
        };

        assert_eq!(
            text(88),
            "spec.hooks.sync.webhook.clientTLS.secretRef: the client certificate in key \"tls.crt\" of Secret ns/s ends in 12 days; replace it"
        );
        assert!(text(99).contains("ends in 1 day;"));
        assert!(text(100).contains("ends within a day;"));
        assert!(text(101).contains("has ended;"));
    }
}
