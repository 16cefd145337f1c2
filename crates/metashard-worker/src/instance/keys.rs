//! The parents that a controller has.

use super::Instance;
use crate::key::ParentKey;

impl Instance {
    /// The keys of all parents that are served here.
    pub(crate) fn keys(&self) -> Vec<ParentKey> {
        let mut keys = Vec::new();
        for (rule, view) in self.parents.iter().enumerate() {
            let parents = view.list();
            let ours = parents
                .iter()
                .filter(|parent| self.cut.takes(parent.namespace(), parent.name()))
                .filter(|parent| self.controller.concerns(parent));
            keys.extend(ours.map(|parent| ParentKey::of(rule, parent)));
        }
        keys
    }
}
