//! Former answers by entity tag: a hook that says "not modified" is taken to have given its last answer again.
//!
//! What is forgotten costs one whole answer, so the memory is bounded, and the answer used longest ago goes first.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::HeaderValue;
use metashard_api::v1alpha1::webhook::Etag;
use metashard_fleet::time::MonoTime;
use parking_lot::Mutex;

/// Most bytes that are kept for one hook of one controller.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Most bytes that are kept for all hooks. Whoever wants more forgets answers of its own.
const MAX_TOTAL: usize = 128 * 1024 * 1024;
/// What an answer costs beside its bytes.
const OVERHEAD: usize = 256;
/// Longest tag that is kept.
const MAX_TAG: usize = 1024;
/// Shortest time between two clean-ups.
const LEAST_CLEAN_UP: Duration = Duration::from_secs(1);

/// How many bytes are kept for all hooks of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Total(Arc<AtomicUsize>);

/// The answers of one hook of one controller.
pub(crate) struct Tags {
    total: Total,
    /// How long an answer is kept; `None`: without end.
    lifetime: Option<Duration>,
    /// How often those kept too long are looked for.
    clean_up: Duration,
    state: Mutex<State>,
}

/// An answer and its tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tagged {
    pub(crate) tag: HeaderValue,
    pub(crate) body: Bytes,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Box<str>, Entry>,
    /// Which was used when, by a count that only grows.
    order: BTreeMap<u64, Box<str>>,
    uses: u64,
    bytes: usize,
    cleaned: Option<MonoTime>,
}

struct Entry {
    tagged: Tagged,
    used: u64,
    since: MonoTime,
}

impl Tags {
    /// As `spec` asks; `None` if it asks for no tags.
    pub(crate) fn new(spec: Option<&Etag>, total: &Total) -> Option<Self> {
        let spec = spec.filter(|spec| spec.enabled)?;
        let seconds = |value: Option<i32>| {
            let value = value.and_then(|value| u64::try_from(value).ok());
            value.filter(|it| *it > 0).map(Duration::from_secs)
        };
        let lifetime = seconds(spec.cache_timeout_seconds);
        Some(Self {
            total: total.clone(),
            lifetime,
            clean_up: seconds(spec.cache_cleanup_seconds)
                .or(lifetime)
                .unwrap_or_default()
                .max(LEAST_CLEAN_UP),
            state: Mutex::default(),
        })
    }

    /// The answer kept for `about`.
    pub(crate) fn get(&self, about: &str, now: MonoTime) -> Option<Tagged> {
        let mut state = self.state.lock();
        let entry = state.entries.get(about)?;
        if self.is_over(entry, now) {
            self.forget(&mut state, about);
            return None;
        }
        let tagged = entry.tagged.clone();
        state.touch(about);
        Some(tagged)
    }

    /// Keeps the answer for `about`. One without a tag, or with an empty one, replaces what was kept by nothing.
    pub(crate) fn put(&self, about: &str, tag: Option<&HeaderValue>, body: &Bytes, now: MonoTime) {
        let mut state = self.state.lock();
        self.forget(&mut state, about);
        self.clean_up(&mut state, now);
        let tag = tag.filter(|tag| !tag.is_empty() && tag.len() <= MAX_TAG);
        let Some(tag) = tag else { return };
        let tagged = Tagged {
            tag: tag.clone(),
            body: body.clone(),
        };
        let size = size_of(about, &tagged);
        if size > MAX_BYTES {
            return;
        }
        while state.bytes + size > MAX_BYTES || self.total.get() + size > MAX_TOTAL {
            let Some((_, oldest)) = state.order.first_key_value() else {
                // The others leave no room.
                return;
            };
            let oldest = oldest.clone();
            self.forget(&mut state, &oldest);
        }
        self.total.0.fetch_add(size, Ordering::Relaxed);
        state.insert(about, tagged, now);
    }

    fn forget(&self, state: &mut State, about: &str) {
        self.total.give_back(state.remove(about));
    }

    fn clean_up(&self, state: &mut State, now: MonoTime) {
        if self.lifetime.is_none() {
            return;
        }
        let last = *state.cleaned.get_or_insert(now);
        if now.since(last) < self.clean_up {
            return;
        }
        state.cleaned = Some(now);
        let over: Vec<_> = state
            .entries
            .iter()
            .filter(|(_, entry)| self.is_over(entry, now))
            .map(|(about, _)| about.clone())
            .collect();
        for about in over {
            self.forget(state, &about);
        }
    }

    fn is_over(&self, entry: &Entry, now: MonoTime) -> bool {
        self.lifetime
            .is_some_and(|lifetime| now.since(entry.since) >= lifetime)
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        self.total.give_back(self.state.get_mut().bytes);
    }
}

impl Total {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl State {
    fn insert(&mut self, about: &str, tagged: Tagged, now: MonoTime) {
        self.bytes += size_of(about, &tagged);
        self.uses += 1;
        self.order.insert(self.uses, about.into());
        let entry = Entry {
            tagged,
            used: self.uses,
            since: now,
        };
        self.entries.insert(about.into(), entry);
    }

    /// The bytes that this frees.
    fn remove(&mut self, about: &str) -> usize {
        let Some(entry) = self.entries.remove(about) else {
            return 0;
        };
        self.order.remove(&entry.used);
        let size = size_of(about, &entry.tagged);
        self.bytes -= size;
        size
    }

    fn touch(&mut self, about: &str) {
        let Some(entry) = self.entries.get_mut(about) else {
            return;
        };
        self.uses += 1;
        if let Some(about) = self.order.remove(&entry.used) {
            self.order.insert(self.uses, about);
        }
        entry.used = self.uses;
    }
}

fn size_of(about: &str, tagged: &Tagged) -> usize {
    2 * about.len() + tagged.tag.len() + tagged.body.len() + OVERHEAD
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tags")
            .field("kept", &self.state.lock().entries.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(timeout: Option<i32>, cleanup: Option<i32>) -> Tags {
        sharing(&Total::default(), timeout, cleanup)
    }

    fn sharing(total: &Total, timeout: Option<i32>, cleanup: Option<i32>) -> Tags {
        let spec = Etag {
            enabled: true,
            cache_timeout_seconds: timeout,
            cache_cleanup_seconds: cleanup,
        };
        Tags::new(Some(&spec), total).unwrap()
    }

    fn at(seconds: u64) -> MonoTime {
        MonoTime::default() + Duration::from_secs(seconds)
    }

    fn keep(tags: &Tags, about: &str, body: impl Into<Bytes>, now: MonoTime) {
        let tag = HeaderValue::from_static("\"1\"");
        tags.put(about, Some(&tag), &body.into(), now);
    }

    fn kept(tags: &Tags) -> usize {
        tags.state.lock().entries.len()
    }

    #[test]
    fn nothing_is_kept_unless_it_is_asked_for() {
        assert!(Tags::new(None, &Total::default()).is_none());
        assert!(Tags::new(Some(&Etag::default()), &Total::default()).is_none());
    }

    /// a lifetime alone makes the peer fail for ever.
    #[test]
    fn a_lifetime_alone_is_enough() {
        let tags = tags(Some(10), None);
        keep(&tags, "a", "x", at(0));

        assert!(tags.get("a", at(9)).is_some());
        assert_eq!(tags.get("a", at(10)), None);
        assert_eq!(kept(&tags), 0);
    }

    #[test]
    fn answers_are_kept_without_end_unless_there_is_a_lifetime() {
        for timeout in [None, Some(0), Some(-1)] {
            let tags = tags(timeout, Some(1));
            keep(&tags, "a", "x", at(0));

            assert!(tags.get("a", at(1_000_000)).is_some(), "{timeout:?}");
        }
    }

    #[test]
    fn what_nobody_asks_for_is_cleaned_up() {
        let tags = tags(Some(10), Some(30));
        for about in ["a", "b", "c"] {
            keep(&tags, about, "x", at(0));
        }

        keep(&tags, "d", "x", at(29));
        assert_eq!(kept(&tags), 4);
        keep(&tags, "d", "x", at(30));
        assert_eq!(kept(&tags), 1);
    }

    #[test]
    fn memory_is_bounded_and_the_answer_used_longest_ago_goes_first() {
        let tags = tags(None, None);
        let big = vec![b'x'; MAX_BYTES / 3];
        for about in ["a", "b"] {
            keep(&tags, about, big.clone(), at(0));
        }
        assert!(tags.get("a", at(1)).is_some());

        keep(&tags, "c", big, at(1));

        assert!(tags.get("b", at(1)).is_none());
        assert!(tags.get("a", at(1)).is_some() && tags.get("c", at(1)).is_some());
        keep(&tags, "d", vec![b'x'; MAX_BYTES], at(1));
        assert!(tags.get("d", at(1)).is_none());
        for number in 0..100_000 {
            keep(&tags, &number.to_string(), "", at(2));
        }
        let state = tags.state.lock();
        assert!(state.bytes <= MAX_BYTES, "{}", state.bytes);
        assert_eq!(state.entries.len(), state.order.len());
    }

    #[test]
    fn all_hooks_together_keep_no_more_than_a_process_can_bear() {
        let total = Total::default();
        let hooks: Vec<_> = (0..12).map(|_| sharing(&total, None, None)).collect();
        for tags in &hooks {
            keep(tags, "a", vec![b'x'; MAX_BYTES - 1024], at(0));
        }

        assert!(total.get() <= MAX_TOTAL, "{}", total.get());
        assert!(
            hooks[0].get("a", at(0)).is_some(),
            "nobody forgets for others"
        );
        assert!(hooks[11].get("a", at(0)).is_none());
        drop(hooks);
        assert_eq!(total.get(), 0);
    }

    #[test]
    fn an_answer_without_a_tag_makes_the_old_one_forgotten() {
        for tag in [None, Some(HeaderValue::from_static(""))] {
            let tags = tags(None, None);
            keep(&tags, "a", "x", at(0));

            tags.put("a", tag.as_ref(), &Bytes::from_static(b"y"), at(0));

            assert_eq!(tags.get("a", at(0)), None);
            assert_eq!(tags.state.lock().bytes, 0);
        }
    }
}
