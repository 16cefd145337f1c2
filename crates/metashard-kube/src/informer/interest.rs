//! What of a view its users want to have: everything else is looked at when it comes, and let go.
//!
//! What was let go is remembered by kind of owner, or by owner where that is one who may be selected later: so nobody takes a
//! view for complete that lacks something of theirs.

use std::{collections::HashSet, sync::Arc};

use metashard_api::resource::group_of;
use metashard_fleet::shard::Cut;
use metashard_reconcile::object::{Object, OwnerReference};
use xxhash_rust::xxh3::Xxh3;

use super::View;

/// What one user of a view wants to have of it.
#[derive(Debug, Clone)]
pub enum Interest {
    /// Everything.
    All,
    /// The objects whose own names belong to a part of a controller's parents.
    Named(Cut),
    /// The objects that others control.
    Controlled(Controlled),
}

/// The objects that objects of some views control.
#[derive(Debug, Clone)]
pub struct Controlled {
    /// Where the owners are, one view for each kind. As long as one of these is not synced, all objects count that an object of
    /// its kind controls.
    pub by: Arc<[View]>,
    /// The owners' names belong to it.
    pub cut: Cut,
    /// Also the objects that nothing controls, which could be adopted.
    pub with_ownerless: bool,
}

/// How much an object is to a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// Nothing.
    Foreign,
    /// Nothing as long as its owner is not among the owners.
    Stranger,
    Wanted,
}

impl Interest {
    fn worth_of(&self, object: &Object, owner: Option<&OwnerReference<'_>>) -> Worth {
        let is_wanted = match self {
            Self::All => true,
            Self::Named(cut) => cut.takes(object.namespace(), object.name()),
            Self::Controlled(controlled) => match owner {
                Some(owner) => return controlled.worth_of(object, owner),
                None => controlled.with_ownerless,
            },
        };
        if is_wanted {
            Worth::Wanted
        } else {
            Worth::Foreign
        }
    }

    /// Whether some of what was let go may be wanted by it; strangers aside, of which is known whose they are.
    fn may_want_of(&self, let_go: &LetGo) -> bool {
        match self {
            Self::All | Self::Named(_) => !(let_go.kin.is_empty() && let_go.owners.is_empty()),
            Self::Controlled(controlled) => {
                let mut kinds = controlled.by.iter().map(|view| view.key().resource());
                (controlled.with_ownerless && let_go.has_kin(None))
                    || kinds.any(|it| let_go.has_kin(Some((&it.group, &it.kind))))
            }
        }
    }

    /// Whether it wants the same as another one, now and later.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, Self::All) => true,
            (Self::Named(one), Self::Named(other)) => one == other,
            (Self::Controlled(one), Self::Controlled(other)) => {
                one.cut == other.cut
                    && one.with_ownerless == other.with_ownerless
                    && one
                        .by
                        .iter()
                        .map(View::key)
                        .eq(other.by.iter().map(View::key))
            }
            _ => false,
        }
    }

    /// Whether it is known which owners there are.
    fn is_settled(&self) -> bool {
        match self {
            Self::All | Self::Named(_) => true,
            Self::Controlled(controlled) => controlled.by.iter().all(View::is_synced),
        }
    }
}

impl Controlled {
    fn worth_of(&self, object: &Object, owner: &OwnerReference<'_>) -> Worth {
        let of_kind = |view: &&View| {
            let resource = view.key().resource();
            resource.is_of(owner.api_version, owner.kind)
        };
        let Some(owners) = self.by.iter().find(of_kind) else {
            return Worth::Foreign;
        };
        let is_namespaced = owners.key().resource().namespaced;
        let namespace = object.namespace().filter(|_| is_namespaced);
        if !self.cut.takes(namespace, owner.name) {
            Worth::Foreign
        } else if owners.is_synced() && owners.get(namespace, owner.name).is_none() {
            Worth::Stranger
        } else {
            Worth::Wanted
        }
    }
}

/// What is wanted of a view by all its users together.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    /// Each once, with the number of those who share it: a view may have hundreds of users.
    all: Vec<(Interest, usize)>,
    let_go: LetGo,
    /// There may be objects that nobody wants: somebody has left, or it was not known which owners there are.
    has_slack: bool,
}

/// What was let go.
#[derive(Debug, Clone, Default)]
pub(crate) struct LetGo {
    /// Of what nobody could want: so a newcomer who could knows that it lacks some. A few kinds, each once.
    kin: Vec<Kin>,
    /// Of strangers the owners, as hashes: one of another object costs a list, and nothing more.
    owners: HashSet<u64>,
}

/// Group and kind of the objects that control some; `None`: nothing controls them.
type Kin = Option<(Box<str>, Box<str>)>;

impl Interests {
    /// Adds a user. Whether some of what it wants may have been let go.
    pub(crate) fn add(&mut self, interest: Interest) -> bool {
        let lacks = interest.may_want_of(&self.let_go);
        self.has_slack |= !interest.is_settled();
        match self.all.iter_mut().find(|(it, _)| it.is_like(&interest)) {
            Some((_, users)) => *users += 1,
            None => self.all.push((interest, 1)),
        }
        lacks
    }

    /// Takes a user away; returns what is to be dropped once no lock is held, as it may hold views.
    pub(crate) fn remove(&mut self, interest: &Interest) -> Option<Interest> {
        let at = self.all.iter().position(|(it, _)| it.is_like(interest))?;
        let (_, users) = self.all.get_mut(at)?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.has_slack = true;
        Some(self.all.swap_remove(at).0)
    }

    /// Whether anybody wants `object`. If not, that it is let go is kept in mind, and in `listing` if that shows it.
    pub(crate) fn want(&mut self, object: &Object, listing: Option<&mut LetGo>) -> bool {
        let owner = object.controller_owner();
        let mut most = Worth::Foreign;
        for (interest, _) in &self.all {
            most = most.max(interest.worth_of(object, owner.as_ref()));
            if most == Worth::Wanted {
                return true;
            }
        }
        let is_stranger = most == Worth::Stranger;
        self.let_go.add(object, owner.as_ref(), is_stranger);
        if let Some(listing) = listing {
            listing.add(object, owner.as_ref(), is_stranger);
        }
        false
    }

    /// A complete list has shown everything; this is what was let go of it.
    pub(crate) fn listed(&mut self, let_go: LetGo) {
        self.let_go = let_go;
    }

    /// Whether something was let go that `owner` controls.
    pub(crate) fn lack_of(&self, owner: &Object) -> bool {
        let owner = hash(
            owner.kind(),
            owner.uid(),
            owner.name(),
            owner.namespace().unwrap_or_default(),
        );
        self.let_go.owners.contains(&owner)
    }

    /// Whether there may be objects by now that nobody wants. It is asked for once, unless that cannot be known yet.
    pub(crate) fn take_slack(&mut self) -> bool {
        if !self.has_slack {
            return false;
        }
        self.has_slack = !self.all.iter().all(|(it, _)| it.is_settled());
        true
    }
}

impl LetGo {
    fn add(&mut self, object: &Object, owner: Option<&OwnerReference<'_>>, is_stranger: bool) {
        if let (Some(owner), true) = (owner, is_stranger) {
            // The owner has the object's namespace, or none.
            for namespace in ["", object.namespace().unwrap_or_default()] {
                let owner = hash(owner.kind, owner.uid, owner.name, namespace);
                self.owners.insert(owner);
            }
            return;
        }
        let kin = owner.map(|it| (group_of(it.api_version), it.kind));
        // Nearly always it is there, and this runs for every event of what is foreign: no text is made before.
        if !self.has_kin(kin) {
            let kin = kin.map(|(group, kind)| (group.into(), kind.into()));
            self.kin.push(kin);
        }
    }

    fn has_kin(&self, kin: Option<(&str, &str)>) -> bool {
        let mut all = self.kin.iter().map(Option::as_ref);
        all.any(|it| it.map(|(group, kind)| (&**group, &**kind)) == kin)
    }
}

/// Of all that has to agree if an object is to be kept once its owner is known: a list for what disagrees would help nothing.
fn hash(kind: &str, uid: &str, name: &str, namespace: &str) -> u64 {
    let mut hasher = Xxh3::new();
    for text in [kind, uid, name, namespace] {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    }
    hasher.digest()
}
