//! The way from Metacontroller to metashard.

use metashard_api::v1alpha1::status::MigrationStatus;

use super::{BOTH_WAYS, Mark, Next, Wishes, mark, parents, some_of};
use crate::migrate::{
    record::{Record, Stage},
    seen::{ControllerSeen, LeaseSeen, Seen},
};

/// The next step on the way to metashard.
pub fn apply(seen: &Seen, wishes: &Wishes) -> Next {
    let Some(record) = &seen.record else {
        return begin(seen);
    };
    match record.stage {
        Stage::HandingBack | Stage::Back => begin(seen),
        Stage::Observing => observe(seen, record, wishes),
        Stage::Stopping => stop(seen, record),
        Stage::Moving => go_over(seen, record, wishes),
        Stage::Done => done(seen),
    }
}

/// What stands in the way of a move that has not begun.
fn blockers(seen: &Seen) -> Vec<String> {
    let mut blockers = seen.lacks.clone();
    for controller in &seen.controllers {
        let refusals = controller.moved.refusals.iter();
        blockers.extend(
            refusals.map(|why| format!("{} would not be served: {why}", controller.title())),
        );
    }
    if seen.peers.is_empty() {
        blockers.push(
            "no Metacontroller was found among StatefulSets and Deployments: one that runs otherwise, or under another \
             name of image and program, cannot be stopped from here; scale or stop it by hand as the guide says"
                .to_owned(),
        );
    }
    blockers.extend(seen.strays.iter().map(|pod| {
        format!("{pod} runs Metacontroller and belongs to no StatefulSet or Deployment that could be scaled: stop it first")
    }));
    let runs = seen.peers.iter().any(|it| !it.is_stopped());
    let acted_on = seen
        .controllers
        .iter()
        .filter(|it| it.is_acted_on && !it.observe);
    let acted_on = some_of(acted_on.map(ControllerSeen::title));
    if runs && !acted_on.is_empty() && seen.record.is_none() && seen.replicas != Some(0) {
        blockers.push(format!(
            "metashard acts on {acted_on} already, while a Metacontroller runs: if both select them, stop metashard at once; \
             if their target label selectors keep them apart, this cannot be moved from here"
        ));
    }
    blockers
}

fn begin(seen: &Seen) -> Next {
    let blockers = blockers(seen);
    let runs = seen.peers.iter().any(|it| !it.is_stopped());
    if !blockers.is_empty() {
        Next::Stop(blockers)
    } else if runs && seen.record.is_none() && seen.replicas.is_none() {
        Next::Wait("it is seen whether metashard runs".to_owned())
    } else {
        seen.turn(Stage::Observing)
    }
}

/// metashard looks at every controller.
fn observe(seen: &Seen, record: &Record, wishes: &Wishes) -> Next {
    let blockers = blockers(seen);
    if !blockers.is_empty() {
        return Next::Stop(blockers);
    }
    if record.workloads != seen.remembered() {
        return seen.go_to(record, Stage::Observing);
    }
    if let Some(next) = seen.mark_all(record.round) {
        return next;
    }
    let chosen = seen.controllers.iter().filter(|it| wishes.chooses(it));
    if let Some(wait) = chosen.clone().find_map(|it| unobserved(it, record, seen)) {
        return Next::Wait(wait);
    }
    let mut told = Vec::new();
    for controller in chosen {
        let Some(answer) = controller.answer(record.round) else {
            continue;
        };
        if answer.writes > 0 && !wishes.accept_writes {
            told.push(format!("{}: {}", controller.title(), would(answer)));
            told.extend(answer.examples.iter().map(|it| format!("  {it}")));
        }
    }
    if !told.is_empty() {
        told.push(
            "`metashardctl diff CONTROLLER -A` shows the fields. Metacontroller still acts, and nothing was written. \
             Where these writes are wanted, add --accept-writes."
                .to_owned(),
        );
        return Next::Stop(told);
    }
    if wishes.only_observe {
        return Next::Finished(vec![
            "Everything is observed, and Metacontroller still acts.".to_owned(),
            BOTH_WAYS.to_owned(),
        ]);
    }
    match left_alone(seen, wishes) {
        Some(why) => Next::Stop(vec![why]),
        None => seen.go_to(record, Stage::Stopping),
    }
}

/// What is waited for until a controller has been observed.
fn unobserved(controller: &ControllerSeen, record: &Record, seen: &Seen) -> Option<String> {
    let title = controller.title();
    let Some(answer) = controller.answer(record.round) else {
        return Some(match seen.replicas {
            Some(0) => "metashard to be started: no replica is live in this namespace".to_owned(),
            _ => format!("metashard to observe {title}"),
        });
    };
    if answer.acts || !answer.held {
        return Some(format!(
            "the replica that serves {title} to follow the record: it must be of this version, and may get ConfigMaps of its namespace"
        ));
    }
    if controller.is_paused {
        return None;
    }
    if controller.ready != Some(true) {
        return Some(format!("{title} to be ready: {}", controller.message));
    }
    (answer.synced < answer.parents || answer.failing > 0).then(|| {
        let first = answer.examples.first().filter(|_| answer.failing > 0);
        let why = first.map(|it| format!(": {it}")).unwrap_or_default();
        let (synced, of, failing) = (answer.synced, parents(answer.parents), answer.failing);
        format!("{title} to be observed: {synced} of {of}, {failing} failing{why}")
    })
}

/// `3 parents, writes we would have made: 0`.
pub(super) fn would(answer: &MigrationStatus) -> String {
    format!(
        "{}, writes we would have made: {}",
        parents(answer.parents),
        answer.writes
    )
}

/// Why the wish to move only some controllers is not followed.
fn left_alone(seen: &Seen, wishes: &Wishes) -> Option<String> {
    let others = seen.controllers.iter().filter(|it| !wishes.chooses(it));
    let others = some_of(others.map(ControllerSeen::title));
    if others.is_empty() || wishes.let_others_rest {
        return None;
    }
    Some(format!(
        "While Metacontroller is stopped nobody would act on {others}. It cannot be made to let go of single controllers: it \
         forgets one that is relabelled only when it ends. Move all of them, or add --let-others-rest to leave these \
         without anybody until the next `migrate apply`."
    ))
}

/// Metacontroller is stopped.
fn stop(seen: &Seen, record: &Record) -> Next {
    if record.workloads != seen.remembered() {
        return seen.go_to(record, Stage::Stopping);
    }
    if let Some(next) = seen.mark_all(record.round) {
        return next;
    }
    if let Some(peer) = seen.peers.iter().find(|it| it.workload.replicas > 0) {
        let mut workload = peer.workload.clone();
        workload.replicas = 0;
        return Next::Scale(workload);
    }
    match alive(seen) {
        Some(wait) => Next::Wait(wait),
        None => seen.go_to(record, Stage::Moving),
    }
}

/// What of Metacontroller has not ended yet, as something to wait for.
fn alive(seen: &Seen) -> Option<String> {
    if let Some(peer) = seen.peers.iter().find(|it| !it.is_stopped()) {
        let (title, pods) = (peer.workload.title(), peer.pods);
        return Some(match pods {
            0 => format!("kube-controller-manager to see that {title} is to have no Pods"),
            pods => format!("the Pods of {title} to end: {pods} are there"),
        });
    }
    if !seen.strays.is_empty() {
        return Some(format!("the end of {}", seen.strays.join(", ")));
    }
    let live = seen.leases.iter().find(|it| it.is_over != Some(true))?;
    let LeaseSeen {
        title,
        holder,
        is_over,
    } = live;
    Some(match is_over {
        None => format!("the Lease {title} of {holder} to run out"),
        _ => format!(
            "the Lease {title} of {holder} to run out; if that takes longer than it lasts, {holder} still renews it from where it was not found"
        ),
    })
}

/// metashard acts on one controller after the other.
fn go_over(seen: &Seen, record: &Record, wishes: &Wishes) -> Next {
    if let Some(stop) = two_at_once(seen) {
        return stop;
    }
    if let Some(wait) = alive(seen) {
        return Next::Wait(wait);
    }
    let round = record.round;
    let chosen = seen.controllers.iter().filter(|it| wishes.chooses(it));
    for controller in chosen {
        if controller.observe {
            return mark(
                controller,
                Some(Mark {
                    observe: false,
                    round,
                }),
            );
        }
        // One without a mark of this round is new: nobody else ever acted on it.
        if controller.round.as_deref() == Some(round.to_string().as_str())
            && let Some(next) = unsettled(controller, round)
        {
            return next;
        }
    }
    let rest = seen.controllers.iter().filter(|it| it.observe);
    let rest = some_of(rest.map(ControllerSeen::title));
    if rest.is_empty() {
        return seen.go_to(record, Stage::Done);
    }
    Next::Finished(vec![
        format!("Moved. Nobody acts on {rest} until the next `metashardctl migrate apply`."),
        BOTH_WAYS.to_owned(),
    ])
}

/// A Metacontroller runs again.
fn two_at_once(seen: &Seen) -> Option<Next> {
    let back = seen.peers.iter().find(|it| it.workload.replicas > 0)?;
    let title = back.workload.title();
    Some(Next::Stop(vec![
        format!("{title} was started again while metashard acts: somebody scaled it up, or keeps it as a repository says."),
        "Scale it to 0 at once, or go back with `metashardctl migrate rollback`; then go on with `metashardctl migrate apply`."
            .to_owned(),
    ]))
}

/// What is missing until the next controller may follow this one.
fn unsettled(controller: &ControllerSeen, round: u64) -> Option<Next> {
    if controller.is_paused {
        return None;
    }
    let title = controller.title();
    let Some(answer) = controller.answer(round).filter(|it| it.acts) else {
        return Some(Next::Wait(format!("metashard to act on {title}")));
    };
    if controller.ready == Some(false) {
        return Some(Next::Stop(vec![
            format!("{title} is not ready: {}", controller.message),
            "The controllers after it are not moved.".to_owned(),
            BOTH_WAYS.to_owned(),
        ]));
    }
    let is_synced = answer.synced >= answer.parents && answer.failing == 0;
    let is_settled = controller.ready == Some(true) && is_synced;
    (!is_settled).then(|| {
        let first = answer.examples.first().filter(|_| answer.failing > 0);
        let why = first.map(|it| format!(": {it}")).unwrap_or_default();
        let (synced, of, failing) = (answer.synced, parents(answer.parents), answer.failing);
        Next::Wait(format!(
            "{title} to settle: {synced} of {of} synced, {failing} failing{why}"
        ))
    })
}

/// metashard acts on all of them: their marks go.
fn done(seen: &Seen) -> Next {
    if let Some(stop) = two_at_once(seen) {
        return stop;
    }
    if let Some(marked) = seen
        .controllers
        .iter()
        .find(|it| it.round.is_some() && !it.observe)
    {
        return mark(marked, None);
    }
    Next::Finished(vec![
        "Moved: metashard acts on all controllers, and Metacontroller is stopped.".to_owned(),
        "`metashardctl migrate rollback` goes back as long as Metacontroller's workload is there."
            .to_owned(),
    ])
}

impl Wishes {
    /// Whether a controller is to be moved now.
    pub(super) fn chooses(&self, controller: &ControllerSeen) -> bool {
        self.controllers.is_empty() || self.controllers.iter().any(|it| controller.is_called(it))
    }
}
