//! Faults that tests plant in a process: a panic at a named place, a loop that stands still, a limit that is shorter.
//!
//! A build without debug assertions has none of it: there nothing can be planted, and asking costs nothing.

use std::fmt::Display;

use parking_lot::Mutex;

/// What was planted and has not struck. One list for the process, as a fault is the process's.
static PLANTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Plants faults, separated by `;`: `panic feed v1/pods`, `stop host`, `loop-limit=8`, `break=ProofBeforeOwner`,
/// `version=0.2.0`.
pub fn plant(faults: &str) {
    if cfg!(debug_assertions) {
        let faults = faults.split(';').map(str::trim).filter(|it| !it.is_empty());
        PLANTED.lock().extend(faults.map(str::to_owned));
    }
}

/// A place where a panic can be planted.
///
/// # Panics
///
/// Once if `panic <place> <of>` was planted.
pub fn panic_at(place: &str, of: &dyn Display) {
    let is_planted = cfg!(debug_assertions) && strikes(|| format!("panic {place} {of}"));
    assert!(!is_planted, "planted at {place} of {of}");
}

/// Never returns if `stop <place>` was planted.
pub async fn stand_still_at(place: &str) {
    if cfg!(debug_assertions) && strikes(|| format!("stop {place}")) {
        std::future::pending::<()>().await;
    }
}

/// The number that was planted as `<name>=<number>`.
pub fn number(name: &str) -> Option<u64> {
    word(name)?.parse().ok()
}

/// The word that was planted as `<name>=<word>`.
pub fn word(name: &str) -> Option<String> {
    if !cfg!(debug_assertions) {
        return None;
    }
    let planted = PLANTED.lock();
    let mut values = planted
        .iter()
        .filter_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    values.next().map(str::to_owned)
}

/// Whether this was planted; it strikes once.
fn strikes(fault: impl Fn() -> String) -> bool {
    let mut planted = PLANTED.lock();
    if planted.is_empty() {
        return false;
    }
    let fault = fault();
    let place = planted.iter().position(|it| *it == fault);
    place.is_some_and(|place| {
        planted.swap_remove(place);
        true
    })
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_planted_panic_strikes_once_and_only_where_it_was_planted() {
        plant(" panic feed v1/apples ; apples-limit=8 ");
        let strikes = |of: &str| std::panic::catch_unwind(|| panic_at("feed", &of)).is_err();

        assert!(!strikes("v1/pears"));
        assert!(strikes("v1/apples"));
        assert!(!strikes("v1/apples"));
        assert_eq!(number("apples-limit"), Some(8));
        assert_eq!(number("apples"), None);
    }
}
