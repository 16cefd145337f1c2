//! Which Events are written, raised in count, put together, or dropped: client-go's rules, and that what comes again and
//! again is not written each time.

use std::{collections::HashMap, time::Duration};

use metashard_fleet::time::MonoTime;

use super::Event;

/// So many Events of one object that differ in their message only are written apart.
const MAX_SIMILAR: usize = 10;
/// What is similar is put together within this time.
const SIMILAR_WITHIN: Duration = Duration::from_mins(10);
/// An Event that comes again is counted, and written at most once within this time: many parents of one failing hook would
/// else cost a write for each attempt.
const TOLD_EVERY: Duration = Duration::from_mins(5);
/// So many of one that is no warning are written at once: of a start and a stop each counts.
const TOLD_AT_ONCE: i32 = 3;
/// Memory of so many objects and Events; what was longest unused is forgotten.
const MAX_REMEMBERED: usize = 4096;

/// Longest message of an Event in bytes: the API server's limit.
const MAX_MESSAGE: usize = 1024;

/// Begins the message of an Event that stands for several.
const COMBINED: &str = "(combined from similar events): ";

/// What to do with an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Write a new one.
    Create {
        /// Its message.
        message: String,
    },
    /// Raise the count of one that was written.
    Count {
        /// Its message now.
        message: String,
        /// Its name.
        name: String,
        /// Its count now.
        count: i32,
    },
    /// It was told a short while ago: it is counted, which is written with a later one.
    Hold,
    /// There are too many about this object.
    Drop,
}

/// Remembers what was written lately.
#[derive(Debug)]
pub(super) struct Aggregator {
    burst: f64,
    /// Per second.
    qps: f64,
    buckets: HashMap<Box<str>, Bucket>,
    similar: HashMap<Similar, Messages>,
    written: HashMap<Written, Counted>,
    /// What the last decision to create is about.
    pending: Option<Written>,
}

/// Object, type and reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Similar {
    uid: Box<str>,
    is_warning: bool,
    reason: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Written {
    similar: Similar,
    /// `None`: the one that stands for several.
    message: Option<Box<str>>,
}

#[derive(Debug)]
struct Messages {
    seen: Vec<Box<str>>,
    used: MonoTime,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    used: MonoTime,
}

#[derive(Debug)]
struct Counted {
    name: String,
    count: i32,
    used: MonoTime,
    /// When it was written last.
    told: MonoTime,
}

impl Aggregator {
    pub(super) fn new(burst: u32, qps: f64) -> Self {
        Self {
            burst: f64::from(burst),
            qps: qps.max(0.0),
            buckets: HashMap::new(),
            similar: HashMap::new(),
            written: HashMap::new(),
            pending: None,
        }
    }

    /// Decides about `event` of the object `uid` at `now`. After a `Create` that went well call [`Self::written`].
    pub(super) fn take(&mut self, uid: &str, event: &Event, now: MonoTime) -> Decision {
        self.forget();
        let similar = Similar {
            uid: uid.into(),
            is_warning: event.is_warning,
            reason: (*event.reason).into(),
        };
        let is_combined = self.is_combined(&similar, &event.message, now);
        let key = Written {
            similar,
            message: (!is_combined).then(|| event.message.as_str().into()),
        };
        if let Some(counted) = self.written.get_mut(&key)
            && counted.is_held(event.is_warning, now)
        {
            counted.count = counted.count.saturating_add(1);
            counted.used = now;
            return Decision::Hold;
        }
        if !self.admits(uid, now) {
            return Decision::Drop;
        }
        let message = if is_combined {
            format!("{COMBINED}{}", event.message)
        } else {
            event.message.clone()
        };
        let message = message
            .get(..message.floor_char_boundary(MAX_MESSAGE))
            .unwrap_or_default()
            .to_owned();
        if let Some(counted) = self.written.get_mut(&key) {
            counted.count = counted.count.saturating_add(1);
            (counted.used, counted.told) = (now, now);
            let (name, count) = (counted.name.clone(), counted.count);
            self.pending = Some(key);
            return Decision::Count {
                message,
                name,
                count,
            };
        }
        self.pending = Some(key);
        Decision::Create { message }
    }

    /// The Event that was decided on last is there under this name.
    pub(super) fn written(&mut self, name: String, count: i32) {
        if let Some(key) = self.pending.take() {
            let used = self
                .buckets
                .get(&key.similar.uid)
                .map(|bucket| bucket.used)
                .unwrap_or_default();
            let told = used;
            let counted = Counted {
                name,
                count,
                used,
                told,
            };
            self.written.insert(key, counted);
        }
    }

    /// Whether `message` is one too many of its sort.
    fn is_combined(&mut self, similar: &Similar, message: &str, now: MonoTime) -> bool {
        let messages = self
            .similar
            .entry(similar.clone())
            .or_insert_with(|| Messages {
                seen: Vec::new(),
                used: now,
            });
        if now.since(messages.used) > SIMILAR_WITHIN {
            messages.seen.clear();
        }
        messages.used = now;
        if messages.seen.iter().any(|seen| **seen == *message) {
            return false;
        }
        if messages.seen.len() >= MAX_SIMILAR {
            return true;
        }
        messages.seen.push(message.into());
        false
    }

    fn admits(&mut self, uid: &str, now: MonoTime) -> bool {
        let (burst, qps) = (self.burst, self.qps);
        let bucket = self.buckets.entry(uid.into()).or_insert(Bucket {
            tokens: burst,
            used: now,
        });
        let grown = now.since(bucket.used).as_secs_f64() * qps;
        bucket.tokens = (bucket.tokens + grown).min(burst);
        bucket.used = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    fn forget(&mut self) {
        shrink(&mut self.buckets, |bucket| bucket.used);
        shrink(&mut self.similar, |messages| messages.used);
        shrink(&mut self.written, |counted| counted.used);
    }
}

impl Counted {
    /// Whether it need not be written again now.
    fn is_held(&self, is_warning: bool, now: MonoTime) -> bool {
        let is_new = !is_warning && self.count < TOLD_AT_ONCE;
        !is_new && now.since(self.told) < TOLD_EVERY
    }
}

/// Forgets the older half of a map that is full.
fn shrink<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, used: impl Fn(&V) -> MonoTime) {
    if map.len() < MAX_REMEMBERED {
        return;
    }
    let mut times: Vec<_> = map.values().map(&used).collect();
    let (_, &mut median, _) = times.select_nth_unstable(MAX_REMEMBERED / 2);
    map.retain(|_, value| used(value) > median);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> Event {
        Event {
            is_warning: true,
            reason: "SyncError".into(),
            message: message.to_owned(),
        }
    }

    fn at(seconds: u64) -> MonoTime {
        MonoTime(Duration::from_secs(seconds))
    }

    /// Has an event written; what was decided.
    fn tell(aggregator: &mut Aggregator, uid: &str, event: &Event, now: MonoTime) -> Decision {
        let decision = aggregator.take(uid, event, now);
        if let Decision::Create { .. } = decision {
            aggregator.written(uid.to_owned(), 1);
        }
        decision
    }

    #[test]
    fn a_hook_that_is_down_for_five_minutes_is_told_once_of_each_of_its_parents() {
        let mut aggregator = Aggregator::new(25, 1.0 / 300.0);
        let failures = (0..).map(|n| Duration::from_millis(5 * ((1 << n) - 1)));
        let times: Vec<_> = failures
            .take_while(|time| *time < Duration::from_mins(5))
            .collect();
        assert!(times.len() > 10);

        let mut written = 0;
        for time in &times {
            for parent in 0..100 {
                let now = MonoTime(Duration::from_secs(1) + *time);
                let down = event("Sync error: no answer");
                let decision = tell(&mut aggregator, &format!("p{parent}"), &down, now);
                written += usize::from(decision != Decision::Hold);
            }
        }
        assert_eq!(written, 100);

        let later = tell(
            &mut aggregator,
            "p0",
            &event("Sync error: no answer"),
            at(400),
        );
        let Decision::Count { count, .. } = later else {
            panic!("{later:?}")
        };
        assert_eq!(usize::try_from(count), Ok(times.len() + 1));
    }

    #[test]
    fn what_is_held_leaves_room_for_what_is_new() {
        let mut aggregator = Aggregator::new(2, 0.0);
        for second in 0..100 {
            tell(&mut aggregator, "u", &event("a"), at(second));
        }

        let new = tell(&mut aggregator, "u", &event("b"), at(101));

        assert!(matches!(new, Decision::Create { .. }));
    }

    #[test]
    fn starts_and_stops_are_counted_at_once_unless_there_are_many() {
        let mut aggregator = Aggregator::new(25, 0.0);
        let started = Event {
            is_warning: false,
            reason: "Started".into(),
            message: "Started controller: c".to_owned(),
        };

        let decisions: Vec<_> = (0..5)
            .map(|second| tell(&mut aggregator, "u", &started, at(second)))
            .collect();

        let counts = decisions.iter().map(|it| match it {
            Decision::Create { .. } => 1,
            Decision::Count { count, .. } => *count,
            Decision::Hold | Decision::Drop => 0,
        });
        assert_eq!(counts.collect::<Vec<_>>(), [1, 2, 3, 0, 0]);
    }

    #[test]
    fn the_same_event_again_raises_a_count() {
        let mut aggregator = Aggregator::new(25, 0.0);
        assert_eq!(
            aggregator.take("u", &event("a"), at(1)),
            Decision::Create {
                message: "a".to_owned()
            }
        );
        aggregator.written("e1".to_owned(), 1);

        let again = aggregator.take("u", &event("a"), at(302));

        assert_eq!(
            again,
            Decision::Count {
                message: "a".to_owned(),
                name: "e1".to_owned(),
                count: 2
            }
        );
        assert!(matches!(
            aggregator.take("other", &event("a"), at(303)),
            Decision::Create { .. }
        ));
    }

    #[test]
    fn an_event_that_was_not_written_is_created_again() {
        let mut aggregator = Aggregator::new(25, 0.0);
        aggregator.take("u", &event("a"), at(1));

        assert!(matches!(
            aggregator.take("u", &event("a"), at(2)),
            Decision::Create { .. }
        ));
    }

    #[test]
    fn an_eleventh_message_of_one_sort_is_combined_with_the_next() {
        let mut aggregator = Aggregator::new(100, 0.0);
        for n in 0..10 {
            let decision = aggregator.take("u", &event(&n.to_string()), at(n));
            assert_eq!(
                decision,
                Decision::Create {
                    message: n.to_string()
                }
            );
        }

        let eleventh = aggregator.take("u", &event("10"), at(11));
        aggregator.written("combined".to_owned(), 1);
        let twelfth = aggregator.take("u", &event("11"), at(311));

        assert_eq!(
            eleventh,
            Decision::Create {
                message: format!("{COMBINED}10")
            }
        );
        assert_eq!(
            twelfth,
            Decision::Count {
                message: format!("{COMBINED}11"),
                name: "combined".to_owned(),
                count: 2
            }
        );
    }

    #[test]
    fn one_object_cannot_flood_the_others_can_still_speak() {
        let mut aggregator = Aggregator::new(2, 0.1);
        aggregator.take("u", &event("a"), at(0));
        aggregator.take("u", &event("b"), at(0));

        assert_eq!(aggregator.take("u", &event("c"), at(1)), Decision::Drop);
        assert!(matches!(
            aggregator.take("other", &event("c"), at(1)),
            Decision::Create { .. }
        ));
        assert!(matches!(
            aggregator.take("u", &event("c"), at(20)),
            Decision::Create { .. }
        ));
    }

    #[test]
    fn memory_is_bounded() {
        let mut aggregator = Aggregator::new(2, 0.1);
        for n in 0..3 * MAX_REMEMBERED as u64 {
            aggregator.take(&n.to_string(), &event("a"), at(n));
            aggregator.written(n.to_string(), 1);
        }
        assert!(aggregator.buckets.len() <= MAX_REMEMBERED);
        assert!(aggregator.similar.len() <= MAX_REMEMBERED);
        assert!(aggregator.written.len() <= MAX_REMEMBERED);
    }
}
