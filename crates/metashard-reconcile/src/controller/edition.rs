//! Which changes of a controller object make another controller of it.

use std::collections::BTreeMap;

use metashard_api::{shard_map::can_be_slices, v1alpha1::Sharding};
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::Xxh3;

/// What a controller object asks of whoever serves it. Objects of one edition are served alike.
///
/// `spec.sharding` is no part of it: it asks the leader, and workers serve the slices that the map gives them. Were they to
/// start anew at the edit, running hook calls would be cut off before their shards are drained, without the grace that they
/// have a right to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edition(u64);

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    spec: BTreeMap<String, &'a RawValue>,
}

impl Edition {
    /// Of a controller object as it came from the API server. What cannot be read is an edition too.
    pub fn of(controller: &[u8]) -> Self {
        let mut hash = Xxh3::new();
        match serde_json::from_slice::<Parts<'_>>(controller) {
            Ok(Parts { spec }) => {
                let is_heeded =
                    |it: &(&String, &&RawValue)| it.0 != "sharding" || !is_possible(it.1);
                for (field, value) in spec.iter().filter(is_heeded) {
                    hash.update(field.as_bytes());
                    hash.update(&[0]);
                    hash.update(value.get().as_bytes());
                    hash.update(&[0]);
                }
            }
            Err(_) => hash.update(controller),
        }
        Self(hash.digest())
    }

    pub(super) const fn number(self) -> u64 {
        self.0
    }
}

/// A worker refuses what is not.
fn is_possible(sharding: &RawValue) -> bool {
    let sharding = serde_json::from_str::<Option<Sharding>>(sharding.get());
    sharding.is_ok_and(|it| it.and_then(|it| it.slices).is_none_or(can_be_slices))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn edition(metadata: &Value, spec: &Value) -> Edition {
        let object = json!({ "kind": "CompositeController", "metadata": metadata, "spec": spec });
        Edition::of(object.to_string().as_bytes())
    }

    #[test]
    fn an_edition_is_of_the_spec_and_not_of_what_the_leader_is_asked() {
        let metadata = json!({ "generation": 1 });
        let first = edition(&metadata, &json!({ "resyncPeriodSeconds": 4 }));

        let split =
            |slices: u16| json!({ "resyncPeriodSeconds": 4, "sharding": { "slices": slices } });
        let is_same = |spec: &Value| edition(&json!({ "generation": 2 }), spec) == first;

        assert!(is_same(&split(4)) && is_same(&split(64)));
        assert!(is_same(
            &json!({ "resyncPeriodSeconds": 4, "sharding": {} })
        ));
        assert!(is_same(
            &json!({ "resyncPeriodSeconds": 4, "sharding": null })
        ));
        assert!(!is_same(&json!({ "resyncPeriodSeconds": 5 })));
        assert!(!is_same(
            &json!({ "resyncPeriodSeconds": 4, "paused": true })
        ));
    }

    #[test]
    fn slices_that_cannot_be_are_another_edition() {
        let metadata = json!({});
        let of = |sharding: Value| edition(&metadata, &json!({ "sharding": sharding }));
        let good = of(json!({ "slices": 4 }));

        for bad in [
            json!({ "slices": 3 }),
            json!({ "slices": 128 }),
            json!({ "slices": "x" }),
        ] {
            assert_ne!(of(bad.clone()), good, "{bad}");
        }
        assert_ne!(of(json!({ "slices": 3 })), of(json!({ "slices": 5 })));
    }

    #[test]
    fn what_cannot_be_read_changes_with_its_bytes() {
        assert_eq!(Edition::of(b"{"), Edition::of(b"{"));
        assert_ne!(Edition::of(b"{"), Edition::of(b"["));
    }
}
