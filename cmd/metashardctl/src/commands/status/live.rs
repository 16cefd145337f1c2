//! What replicas say of controllers at the moment: their last syncs.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, stream};
use metashard_reconcile::object::Object;
use serde_json::Value;

use crate::{age, argv::Asking, cluster::Cluster, fleet::Fleet, output};

/// The last sync of each controller, by its uid.
#[derive(Debug)]
pub(super) struct LastSyncs(BTreeMap<String, Value>);

impl LastSyncs {
    /// Asks the replicas that serve these controllers. Those that cannot be asked are told of beside the output.
    pub(super) async fn ask(
        cluster: &Cluster,
        asking: &Asking,
        controllers: &[Arc<Object>],
    ) -> Self {
        let fleets = match Fleet::all(cluster, asking).await {
            Ok(fleets) => fleets,
            Err(error) => {
                output::complain(&format!("last syncs are left out: {error:#}"));
                return Self(BTreeMap::new());
            }
        };
        let mut asked = Vec::new();
        for controller in controllers {
            for fleet in &fleets {
                if let Some(owner) = fleet.owner(controller.uid()) {
                    asked.push(async move {
                        let query = [("controller", controller.name()), ("limit", "1")];
                        (controller, fleet.syncs(cluster, &owner, &query).await)
                    });
                }
            }
        }
        let mut last: BTreeMap<String, Value> = BTreeMap::new();
        let mut answers = stream::iter(asked).buffered(super::AT_ONCE);
        while let Some((controller, answer)) = answers.next().await {
            match answer {
                Ok(syncs) => {
                    let newest = syncs.into_iter().next();
                    last.extend(newest.map(|it| (controller.uid().to_owned(), it)));
                }
                Err(error) => output::complain(&format!(
                    "the last sync of {} is left out: {error:#}",
                    controller.name()
                )),
            }
        }
        Self(last)
    }

    /// `changed 5s ago`, or nothing.
    pub(super) fn of(&self, controller: &Object, cluster: &Cluster) -> String {
        let Some(sync) = self.0.get(controller.uid()) else {
            return String::new();
        };
        let text = |field: &str| sync[field].as_str().unwrap_or_default();
        let ago = age::since(text("at"), cluster.clock.wall());
        format!("{} {ago} ago", text("verdict"))
    }
}
