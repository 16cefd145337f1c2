//! Named tasks: every task of the process is started here, so that a panic is counted and logged with a name.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
};

use tokio::task::{Id, JoinError, JoinHandle, JoinSet};
use tracing::Instrument;

/// Panics of tasks since the process began. One number for the process, as it is about the process.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Starts `future` as a task of its own, in a span with its `name`.
///
/// A panic in it is counted, logged with the name, and comes out of the handle as an error.
/// Dropping the handle lets the task run on.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the function that all others use"
    )]
    tokio::spawn(watched(name, future))
}

/// Runs `work` on a thread of its own kind, for work that would hold up the tasks beside it; otherwise as [`spawn`].
pub fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    tokio::task::spawn_blocking(move || {
        let _span = tracing::info_span!("task", task = name).entered();
        let _watch = PanicWatch(name);
        work()
    })
}

/// The part of a task that panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panicked;

/// Runs `future` as a part of the calling task. A panic in it ends the part and not the task; it is counted and logged
/// as that of a task with this `name`.
///
/// # Errors
///
/// If it panicked.
pub async fn contained<F: Future>(name: &'static str, future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _watch = PanicWatch(name);
            future.as_mut().poll(cx)
        }));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    })
    .await
}

/// How many tasks have panicked since the process began.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Tasks that belong together. Dropping the set aborts those that still run.
#[derive(Debug)]
pub struct Tasks<T> {
    running: JoinSet<T>,
    names: BTreeMap<Id, &'static str>,
}

/// One task of a set has ended.
#[derive(Debug)]
pub struct Ended<T> {
    /// The name it was started with.
    pub name: &'static str,
    /// What it gave back; an error if it panicked or was aborted.
    pub result: Result<T, JoinError>,
}

impl<T: Send + 'static> Tasks<T> {
    /// An empty set.
    pub fn new() -> Self {
        Self {
            running: JoinSet::new(),
            names: BTreeMap::new(),
        }
    }

    /// Starts `future` as a member of the set; otherwise as [`spawn`].
    pub fn spawn<F>(&mut self, name: &'static str, future: F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let handle = self.running.spawn(watched(name, future));
        self.names.insert(handle.id(), name);
    }

    /// The next task that ends; `None` if the set is empty. Dropping the future loses nothing.
    pub async fn join_next(&mut self) -> Option<Ended<T>> {
        let (id, result) = match self.running.join_next_with_id().await? {
            Ok((id, output)) => (id, Ok(output)),
            Err(error) => (error.id(), Err(error)),
        };
        let name = self.names.remove(&id).unwrap_or("unknown");
        Some(Ended { name, result })
    }

    /// Number of tasks that have not been joined.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether all tasks have been joined.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Names of the tasks that have not been joined, sorted: what did not finish in time.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.names.values().copied().collect();
        names.sort_unstable();
        names
    }

    /// Aborts all tasks and waits until they are gone.
    pub async fn abort_all(&mut self) {
        self.running.shutdown().await;
        self.names.clear();
    }
}

impl<T: Send + 'static> Default for Tasks<T> {
    fn default() -> Self {
        Self::new()
    }
}

async fn watched<F: Future>(name: &'static str, future: F) -> F::Output {
    let span = tracing::info_span!("task", task = name);
    let _watch = PanicWatch(name);
    future.instrument(span).await
}

/// Dropped while a panic unwinds the task that it lives in, it counts and logs the panic.
struct PanicWatch(&'static str);

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            PANICS.fetch_add(1, Ordering::Relaxed);
            tracing::error!(task = self.0, "task panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn task_gives_back_its_output() {
        assert_eq!(spawn("adder", async { 1 + 1 }).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn panic_is_counted_and_reported_under_the_name_of_its_task() {
        let before = panics();
        let mut tasks = Tasks::<()>::new();
        tasks.spawn("unlucky", async { panic!("on purpose") });

        let ended = tasks.join_next().await.unwrap();

        assert_eq!(ended.name, "unlucky");
        assert!(ended.result.unwrap_err().is_panic());
        assert!(panics() > before);
    }

    #[tokio::test]
    async fn a_panic_of_a_part_is_counted_and_the_task_goes_on() {
        let before = panics();

        let part = contained("unlucky part", async { panic!("on purpose") }).await;

        assert_eq!(part, Err::<(), _>(Panicked));
        assert!(panics() > before);
        assert_eq!(contained("lucky part", async { 2 }).await, Ok(2));
    }

    #[tokio::test]
    async fn dropping_a_set_ends_its_tasks() {
        let (alive, mut gone) = tokio::sync::mpsc::channel::<()>(1);
        let mut tasks = Tasks::<()>::new();
        tasks.spawn("holder", async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        assert_eq!(tasks.names(), ["holder"]);

        drop(tasks);

        assert_eq!(gone.recv().await, None);
    }

    #[tokio::test]
    async fn aborted_set_is_empty() {
        let mut tasks = Tasks::<()>::new();
        tasks.spawn("sleeper", std::future::pending());
        assert_eq!(tasks.len(), 1);

        tasks.abort_all().await;

        assert!(tasks.is_empty() && tasks.names().is_empty());
        assert!(tasks.join_next().await.is_none());
    }
}
