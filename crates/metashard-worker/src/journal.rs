//! What the last syncs did and why: a bounded memory for people, read by `metashardctl why`. Nothing decides by it.
//!
//! It holds names, fields and texts of events, never values: nothing of a Secret can be in it.

mod record;
mod ring;

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) use self::record::{Notes, Record, Which};
use self::ring::Ring;

/// Most records of one controller.
const MAX_RECORDS: usize = 256;

/// Most bytes of one controller's records.
const MAX_OF_CONTROLLER: usize = 256 << 10;

/// Most bytes of all records: enough for some 10,000 syncs, little beside the caches.
const MAX_BYTES: usize = 4 << 20;

/// Most records of one answer.
const MAX_ANSWERED: usize = 200;

/// What the last syncs did. One for the process.
#[derive(Debug)]
pub struct Journal {
    ring: Mutex<Ring>,
}

/// Which syncs are asked for; what is empty matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Name of the controller.
    pub controller: String,
    /// Kind of the parent, or of an object that was written.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Most of them; `None`: as many as are told at once.
    pub limit: Option<usize>,
}

impl Asked {
    /// From the pairs of a query; names that are not known are passed over.
    pub fn read(pairs: &[(String, String)]) -> Self {
        let find = |name: &str| {
            let found = pairs.iter().find(|pair| pair.0 == name);
            found.map_or_else(String::new, |pair| pair.1.clone())
        };
        Self {
            controller: find("controller"),
            kind: find("kind"),
            namespace: find("namespace"),
            name: find("name"),
            limit: find("limit").parse().ok(),
        }
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            ring: Mutex::new(Ring::new(MAX_RECORDS, MAX_OF_CONTROLLER, MAX_BYTES)),
        }
    }
}

impl Journal {
    /// Adds what a sync did. The oldest records make room.
    pub(crate) fn add(&self, record: Record) {
        self.ring.lock().add(Arc::new(record));
    }

    /// The syncs that match, the newest first, as JSON.
    pub fn answer(&self, asked: &Asked) -> Value {
        // The lock is held for a copy of pointers only.
        let limit = asked.limit.map_or(MAX_ANSWERED, |it| it.min(MAX_ANSWERED));
        let found = self.ring.lock().find(asked, limit);
        let syncs: Vec<_> = found.iter().map(|it| it.to_json()).collect();
        json!({ "syncs": syncs })
    }
}

#[cfg(test)]
mod tests {
    use super::{record::tests::record, *};

    /// More syncs than are remembered.
    const MANY: usize = 50_000;

    #[test]
    fn of_a_full_memory_no_more_is_told_than_one_answer_holds() {
        let journal = Journal::default();
        for number in 0..MANY {
            let controller = format!("c{}", number % 1000);
            journal.add(record(&controller, &format!("p{number}")));
        }
        let of = |controller: &str, name: &str| {
            journal.answer(&Asked {
                controller: controller.to_owned(),
                name: name.to_owned(),
                limit: Some(MANY),
                ..Asked::default()
            })
        };

        let all = of("", "");
        let syncs = all["syncs"].as_array().map(Vec::len);
        assert_eq!(syncs, Some(MAX_ANSWERED));
        assert!(all.to_string().len() < 1 << 20);
        let newest = MANY - 1;
        assert_eq!(all["syncs"][0]["parent"]["name"], format!("p{newest}"));
        assert_eq!(of("", "nobody")["syncs"], json!([]));
        let own = of("c7", "")["syncs"].as_array().map_or(0, Vec::len);
        assert!((1..=MANY / 1000).contains(&own), "{own}");
    }
}
