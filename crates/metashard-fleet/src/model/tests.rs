//! The rules hold within stated bounds, and each mutant of them breaks what it should within the same bounds.

mod election;
mod fleet;

use std::{collections::BTreeSet, hash::Hash};

use stateright::{Checker, HasDiscoveries, Model};

use crate::invariants::Invariant;

/// What the exploration of a model has found.
#[derive(Debug)]
struct Found {
    /// What the shortest history that breaks anything breaks.
    broken: BTreeSet<Invariant>,
    /// Whether some history shows what has to be possible for all this to mean anything.
    is_meaningful: bool,
    /// Whether in some history a controller is split.
    is_split: bool,
}

/// Explores every history of `model`, up to the first that breaks an invariant. `name` is told with the number of states.
#[expect(clippy::print_stdout, reason = "tells how much was explored")]
fn explore<M>(name: &str, model: M, broken: fn(&M::State) -> &BTreeSet<Invariant>) -> Found
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + std::fmt::Debug + Send + Sync + 'static,
    M::Action: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static,
{
    let checker = model
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let (n_states, depth) = (checker.unique_state_count(), checker.max_depth());
    let history = found
        .get("invariants")
        .cloned()
        .map(stateright::Path::into_actions);
    println!("{name}: {n_states} states, {depth} steps; breaking history: {history:?}");
    assert!(
        !found.contains_key("machines come to rest"),
        "{name}: {found:?}"
    );
    Found {
        broken: found
            .get("invariants")
            .map(|path| broken(path.last_state()).clone())
            .unwrap_or_default(),
        is_meaningful: found.keys().any(|name| name.ends_with("changes hands")),
        is_split: found.contains_key("a controller is split"),
    }
}
