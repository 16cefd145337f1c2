//! A ring of records with three bounds: of each controller by count and by bytes, and of all of them by bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{Asked, Record};

/// The records, by when they came.
#[derive(Debug)]
pub(super) struct Ring {
    max_records: usize,
    max_of_controller: usize,
    max_bytes: usize,
    next: u64,
    /// In the order in which they came.
    records: BTreeMap<u64, Arc<Record>>,
    /// Of each controller, the same.
    controllers: BTreeMap<Box<str>, Own>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Own {
    numbers: VecDeque<u64>,
    bytes: usize,
}

impl Ring {
    pub(super) fn new(max_records: usize, max_of_controller: usize, max_bytes: usize) -> Self {
        Self {
            max_records,
            max_of_controller,
            max_bytes,
            next: 0,
            records: BTreeMap::new(),
            controllers: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Adds the newest. One that is larger than a bound is the only one of its controller.
    pub(super) fn add(&mut self, record: Arc<Record>) {
        let size = record.size();
        let (max_records, max_bytes) = (self.max_records, self.max_of_controller);
        let controller = record.controller.clone();
        while self
            .controllers
            .get(&controller)
            .is_some_and(|own| own.numbers.len() >= max_records || own.bytes + size > max_bytes)
            && self.drop_oldest_of(&controller)
        {}
        while self.bytes + size > self.max_bytes && self.drop_oldest() {}
        let own = self.controllers.entry(controller).or_default();
        own.numbers.push_back(self.next);
        own.bytes += size;
        self.bytes += size;
        self.records.insert(self.next, record);
        self.next += 1;
    }

    /// The newest first, at most `limit`.
    pub(super) fn find(&self, asked: &Asked, limit: usize) -> Vec<Arc<Record>> {
        let matching = |it: &&Arc<Record>| it.matches(asked);
        if asked.controller.is_empty() {
            let newest = self.records.values().rev();
            return newest.filter(matching).take(limit).cloned().collect();
        }
        let own = self.controllers.get(asked.controller.as_str());
        own.into_iter()
            .flat_map(|own| own.numbers.iter().rev())
            .filter_map(|number| self.records.get(number))
            .filter(matching)
            .take(limit)
            .cloned()
            .collect()
    }

    fn drop_oldest(&mut self) -> bool {
        let oldest = self.records.first_key_value();
        let Some(controller) = oldest.map(|(_, record)| record.controller.clone()) else {
            return false;
        };
        self.drop_oldest_of(&controller)
    }

    fn drop_oldest_of(&mut self, controller: &str) -> bool {
        let Some(own) = self.controllers.get_mut(controller) else {
            return false;
        };
        let record = own
            .numbers
            .pop_front()
            .and_then(|it| self.records.remove(&it));
        let Some(record) = record else {
            self.controllers.remove(controller);
            return false;
        };
        own.bytes -= record.size();
        self.bytes -= record.size();
        if own.numbers.is_empty() {
            self.controllers.remove(controller);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::record, *};

    fn names(ring: &Ring, controller: &str) -> Vec<String> {
        let asked = Asked {
            controller: controller.to_owned(),
            ..Asked::default()
        };
        let found = ring.find(&asked, 100);
        found.iter().map(|it| it.name.to_string()).collect()
    }

    #[test]
    fn a_busy_controller_pushes_out_its_own_records_only() {
        let mut ring = Ring::new(2, usize::MAX, usize::MAX);

        for (controller, name) in [("quiet", "q"), ("busy", "1"), ("busy", "2"), ("busy", "3")] {
            ring.add(Arc::new(record(controller, name)));
        }

        assert_eq!(names(&ring, "busy"), ["3", "2"]);
        assert_eq!(names(&ring, "quiet"), ["q"]);
    }

    #[test]
    fn all_records_together_stay_within_their_bytes_and_the_oldest_goes() {
        let size = record("a", "1").size();
        let mut ring = Ring::new(100, usize::MAX, 3 * size);

        for (controller, name) in [("a", "1"), ("b", "2"), ("a", "3"), ("b", "4")] {
            ring.add(Arc::new(record(controller, name)));
        }

        assert_eq!(names(&ring, ""), ["4", "3", "2"]);
        assert_eq!(names(&ring, "a"), ["3"]);
        assert!(ring.bytes <= 3 * size);
    }

    #[test]
    fn bytes_of_one_controller_are_bounded() {
        let size = record("a", "1").size();
        let mut ring = Ring::new(100, 2 * size, usize::MAX);

        for name in ["1", "2", "3"] {
            ring.add(Arc::new(record("a", name)));
        }

        assert_eq!(names(&ring, "a"), ["3", "2"]);
    }
}
