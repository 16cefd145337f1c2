//! Sessions between workers and whoever leads: ordered, and without loss as long as they last.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use metashard_api::id::Incarnation;

use super::{Fleet, State, process::Input};
use crate::{
    leader,
    message::{FromLeader, FromWorker},
    worker,
};

/// All sessions, by the worker's process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Sessions {
    open: BTreeMap<usize, Session>,
    /// Leaders that have not noticed yet that the session of an incarnation has ended.
    ended: VecDeque<(usize, Incarnation)>,
}

/// The session that one worker wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Session {
    incarnation: Incarnation,
    /// The leader's process, once connected.
    leader: Option<usize>,
    stalled: bool,
    /// The leader has closed it.
    closed: bool,
    up: VecDeque<FromWorker>,
    down: VecDeque<FromLeader>,
}

/// What a session does next.
enum Event {
    Connect {
        worker: usize,
        leader: usize,
    },
    Closed {
        worker: usize,
    },
    Up {
        leader: usize,
        from: Incarnation,
        message: FromWorker,
    },
    Down {
        worker: usize,
        message: FromLeader,
    },
    Ended {
        leader: usize,
        of: Incarnation,
    },
}

impl Sessions {
    /// Whether messages of a worker are kept back; `None`: it has no connection.
    pub(super) fn is_stalled(&self, worker: usize) -> Option<bool> {
        self.open
            .get(&worker)
            .filter(|it| it.leader.is_some())
            .map(|it| it.stalled)
    }

    pub(super) fn stall(&mut self, worker: usize, stalled: bool) {
        if let Some(session) = self.open.get_mut(&worker) {
            session.stalled = stalled;
        }
    }

    pub(super) fn open(&mut self, worker: usize, incarnation: Incarnation) {
        self.close(worker);
        let session = Session {
            incarnation,
            leader: None,
            stalled: false,
            closed: false,
            up: VecDeque::new(),
            down: VecDeque::new(),
        };
        self.open.insert(worker, session);
    }

    /// The worker ends it.
    pub(super) fn close(&mut self, worker: usize) {
        if let Some(session) = self.open.remove(&worker)
            && let Some(leader) = session.leader
            && !session.closed
        {
            self.ended.push_back((leader, session.incarnation));
        }
    }

    /// A leader ends all of its.
    pub(super) fn close_all(&mut self, leader: usize) {
        for session in self.open.values_mut() {
            if session.leader == Some(leader) {
                session.closed = true;
                session.up.clear();
            }
        }
    }

    pub(super) fn send_up(&mut self, worker: usize, message: FromWorker) {
        if let Some(session) = self.open.get_mut(&worker)
            && session.leader.is_some()
            && !session.closed
        {
            session.up.push_back(message);
        }
    }

    pub(super) fn send_down(&mut self, leader: usize, to: &Incarnation, message: FromLeader) {
        let mut sessions = self.open.values_mut();
        if let Some(session) =
            sessions.find(|it| it.incarnation == *to && it.leader == Some(leader) && !it.closed)
        {
            session.down.push_back(message);
        }
    }
}

impl Fleet {
    /// Lets the next thing happen on some session. Returns whether there was any.
    pub(super) fn talk(&self, state: &mut State) -> bool {
        let Some(event) = self.next_event(state) else {
            return false;
        };
        let sessions = Arc::make_mut(&mut state.sessions);
        let (process, input) = match event {
            Event::Connect { worker, leader } => {
                if let Some(session) = sessions.open.get_mut(&worker) {
                    session.leader = Some(leader);
                }
                (worker, Input::Worker(worker::Input::SessionOpened))
            }
            Event::Closed { worker } => {
                if let Some(session) = sessions.open.get_mut(&worker) {
                    session.leader = None;
                    session.closed = false;
                }
                (worker, Input::Worker(worker::Input::SessionClosed))
            }
            Event::Up {
                leader,
                from,
                message,
            } => {
                let mut open = sessions.open.values_mut();
                if let Some(session) = open.find(|it| it.incarnation == from) {
                    session.up.pop_front();
                }
                (
                    leader,
                    Input::Leader(leader::Input::FromWorker(from, message)),
                )
            }
            Event::Down { worker, message } => {
                if let Some(session) = sessions.open.get_mut(&worker) {
                    session.down.pop_front();
                }
                (worker, Input::Worker(worker::Input::OrderReceived(message)))
            }
            Event::Ended { leader, of } => {
                sessions.ended.retain(|it| *it != (leader, of.clone()));
                (leader, Input::Leader(leader::Input::SessionClosed(of)))
            }
        };
        self.feed(state, process, input);
        true
    }

    fn next_event(&self, state: &State) -> Option<Event> {
        let runs = |n: usize| state.processes[n].is_running();
        let sessions = &state.sessions;
        if let Some((leader, of)) = sessions.ended.iter().find(|(leader, _)| runs(*leader)) {
            return Some(Event::Ended {
                leader: *leader,
                of: of.clone(),
            });
        }
        for (worker, session) in sessions.open.iter().filter(|(_, session)| !session.stalled) {
            let worker = *worker;
            let Some(leader) = session.leader else {
                let leads = |n: &usize| runs(*n) && self.leads(state, *n);
                if runs(worker)
                    && let Some(leader) = (0..self.n_leaders).find(leads)
                {
                    return Some(Event::Connect { worker, leader });
                }
                continue;
            };
            if let Some(message) = session.down.front().filter(|_| runs(worker)) {
                return Some(Event::Down {
                    worker,
                    message: message.clone(),
                });
            }
            if session.closed && runs(worker) {
                return Some(Event::Closed { worker });
            }
            if let Some(message) = session.up.front().filter(|_| runs(leader)) {
                let (from, message) = (session.incarnation.clone(), message.clone());
                return Some(Event::Up {
                    leader,
                    from,
                    message,
                });
            }
        }
        None
    }

    fn leads(&self, state: &State, n: usize) -> bool {
        let process = &state.processes[n];
        let now = self.clocks(process, state.now);
        process.leader().is_some_and(|leader| leader.leads(now))
    }
}
