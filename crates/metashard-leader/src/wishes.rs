//! What people ask of placement: their Placement becomes the machine's wishes, and what it tells becomes the status.

use std::sync::Arc;

use metashard_api::{
    id::{ControllerUid, ReplicaId},
    placement::PlacementSpec,
};
use metashard_fleet::{
    leader::Input,
    wishes::{Pin, Pinned, Told, Wishes},
};
use metashard_kube::{
    informer::Informers,
    placement::{Asked, PlacementWatch, Placements},
};

use crate::{controllers::Controllers, requests::Requests};

/// What people ask, as it was seen last.
#[derive(Debug)]
pub(crate) struct Wished {
    /// `None`: the API server has no Placements, or this process may not see them. Then nothing is asked.
    watched: Option<(Placements, PlacementWatch)>,
    newest: Option<Arc<Asked>>,
}

impl Wished {
    /// Begins to watch.
    pub(crate) fn open(placements: Option<Placements>, informers: &Informers) -> Self {
        let watched = placements.map(|it| {
            let watch = it.watch(informers);
            (it, watch)
        });
        Self {
            watched,
            newest: None,
        }
    }

    /// Returns when something else is asked than before; never, where nothing can be. Dropping the future loses nothing.
    pub(crate) async fn changed(&mut self) {
        match &mut self.watched {
            Some((_, watch)) => self.newest = watch.next().await.map(Arc::new),
            None => std::future::pending().await,
        }
    }

    /// What is asked, for the machine.
    pub(crate) fn input(&self, controllers: &Controllers) -> Input {
        let wishes = self.newest.as_ref().map(|asked| {
            let uids = |word: &str| controllers.called(word);
            Wishes {
                generation: asked.object.generation(),
                observed_rebalance: asked.status.observed_rebalance.clone().unwrap_or_default(),
                ..wishes(&asked.spec, uids)
            }
        });
        Input::WishesSeen(wishes.unwrap_or_default())
    }

    /// The same where controllers have come or gone that a pin may name.
    pub(crate) fn input_for_others(&self, controllers: &Controllers) -> Option<Input> {
        let asked = self.newest.as_ref()?;
        let mut pins = asked.spec.pins.iter();
        pins.any(|it| it.controller.is_some())
            .then(|| self.input(controllers))
    }

    /// Writes what is told.
    pub(crate) fn tell(&self, requests: &mut Requests, told: Told) {
        let known = self.watched.as_ref().zip(self.newest.clone());
        // It may have gone, or changed, since the machine spoke.
        let known = known.filter(|(_, asked)| asked.object.generation() == told.generation);
        let known = known.map(|((placements, _), asked)| (placements.clone(), asked));
        requests.tell_wishes(async move {
            match known {
                Some((placements, asked)) => placements.tell(&asked, &told).await,
                None => false,
            }
        });
    }
}

fn wishes(spec: &PlacementSpec, uids: impl Fn(&str) -> Vec<ControllerUid>) -> Wishes {
    let replica = |name: &String| ReplicaId::new(name.as_str());
    let pins = spec.pins.iter().map(|pin| Pin {
        what: match (pin.shard, &pin.controller) {
            (Some(shard), None) => Pinned::Shard(shard),
            (None, Some(name)) => Pinned::Controller(name.clone(), uids(name)),
            (Some(_), Some(_)) | (None, None) => Pinned::Unclear,
        },
        replica: replica(&pin.replica),
    });
    Wishes {
        cordoned: spec.cordoned.iter().map(replica).collect(),
        pins: pins.collect(),
        rebalance: spec.rebalance.clone().unwrap_or_default(),
        ..Wishes::default()
    }
}

#[cfg(test)]
mod tests {
    use metashard_api::placement::Pin as Asked;

    use super::*;

    #[test]
    fn pin_names_a_shard_or_the_controllers_of_a_name_and_nothing_else_is_taken() {
        let pin = |shard, controller: Option<&str>| Asked {
            shard,
            controller: controller.map(str::to_owned),
            replica: "a".to_owned(),
        };
        let spec = PlacementSpec {
            pins: vec![
                pin(Some(3), None),
                pin(None, Some("foo")),
                pin(Some(3), Some("foo")),
                pin(None, None),
            ],
            ..PlacementSpec::default()
        };

        let wishes = wishes(&spec, |name| {
            vec![ControllerUid::new(format!("uid-{name}"))]
        });

        let pins: Vec<_> = wishes.pins.into_iter().map(|it| it.what).collect();
        let foo = Pinned::Controller("foo".to_owned(), vec![ControllerUid::new("uid-foo")]);
        assert_eq!(
            pins,
            [Pinned::Shard(3), foo, Pinned::Unclear, Pinned::Unclear]
        );
    }
}
