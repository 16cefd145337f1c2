//! How many parents a controller has, for its status: counted now and then, as a status write for each new parent would be
//! too many.

use std::time::Duration;

use metashard_fleet::time::MonoTime;
use metashard_kube::informer::View;
use metashard_runtime::fault;

use super::Instance;

/// How often parents are counted, and so how often a status is written for their number alone.
const COUNT_EVERY: Duration = Duration::from_mins(1);

/// The last count.
#[derive(Debug, Default)]
pub(super) struct Census {
    counted: Option<(MonoTime, u32)>,
}

impl Instance {
    /// How many parents there are, as of the last minute; `None` while that is not known.
    pub(crate) fn parent_count(&self, now: MonoTime) -> Option<u32> {
        let every = fault::number("count-every").map_or(COUNT_EVERY, Duration::from_secs);
        let mut census = self.census.lock();
        if let Some((at, count)) = census.counted
            && now.since(at) < every
        {
            return Some(count);
        }
        if !self.parents.iter().all(View::is_synced) {
            return census.counted.map(|(_, count)| count);
        }
        let views = self.parents.iter();
        let count = views
            .map(|view| view.count(|parent| self.controller.concerns(parent)))
            .sum::<usize>();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        census.counted = Some((now, count));
        Some(count)
    }
}
