//! `why` without `--server`: the replica that owns the controller is found and asked through the API server.

use anyhow::{Context, ensure};
use metashard_testkit::{Replica, cluster, tools::skip};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Ran, User, objects_in, ours, start_replica};
use crate::{
    poor::bind,
    support::{CONFIG_MAP, POD, SHARD_MAP, Stage, THING, config_map, eventually},
};

/// Replicas in a system namespace of their own, with a Pod for each.
struct Fleet {
    stage: Stage,
    system: String,
    address: String,
}

impl Fleet {
    /// `None` where no API server could reach a Pod of this machine; that is said.
    async fn new(claim: &str) -> anyhow::Result<Option<Self>> {
        let Some(address) = cluster::own_address() else {
            skip(claim, "this machine has no address but loopback")?;
            return Ok(None);
        };
        let stage = Stage::new(claim).await?;
        let system = stage.shared.cluster.namespace("why-system").await?;
        let controller = stage.controller().child(CONFIG_MAP, "InPlace");
        controller.edit(ours(&stage)).apply().await?;
        Ok(Some(Self {
            stage,
            system,
            address: address.to_string(),
        }))
    }

    /// Starts a replica and makes its Pod.
    async fn replica(&self, name: &str) -> anyhow::Result<Replica> {
        let name = format!("{}-{name}", self.stage.namespace);
        let replica = start_replica(&self.stage, &name, &self.system).await?;
        let pods = objects_in(&self.stage, POD, &self.system);
        pods.create(json!({
            "metadata": { "name": name },
            "spec": { "containers": [{
                "name": "metashard", "image": "metashard",
                "readinessProbe": { "httpGet": { "port": replica.health_port() } },
            }] },
        }))
        .await?;
        let ips = json!({ "podIP": self.address, "podIPs": [{ "ip": self.address }] });
        pods.patch_status(&name, ips).await?;
        Ok(replica)
    }

    /// A parent with a child.
    async fn parent(&self) -> anyhow::Result<()> {
        let spec = json!({ "children": [config_map("a", json!({ "k": "1" }))] });
        self.stage.parent(THING, "p", spec).await?;
        self.stage.settle(THING, "p").await
    }

    async fn why(&self, user: &User, args: &[&str]) -> anyhow::Result<Ran> {
        let place = [
            "why",
            "-n",
            &self.stage.namespace,
            "--system-namespace",
            &self.system,
        ];
        user.runs(place.into_iter().chain(args.iter().copied()))
            .await
    }
}

fn syncs(ran: &Ran) -> anyhow::Result<Vec<Value>> {
    ensure!(ran.code == 0, "{ran:?}");
    serde_json::from_value(ran.json()?["syncs"].take()).context("read syncs")
}

fn is_from(sync: &Value, replica: &Replica) -> bool {
    sync["replica"] == replica.name()
}

#[tokio::test]
async fn the_replica_that_owns_the_controller_is_asked_through_the_api_server_for_parent_and_child()
-> anyhow::Result<()> {
    let Some(fleet) = Fleet::new("asking").await? else {
        return Ok(());
    };
    let replica = fleet.replica("one").await?;
    fleet.parent().await?;
    let admin = User::admin(fleet.stage.shared)?;

    let of_parent = syncs(&fleet.why(&admin, &["thing/p", "-o", "json"]).await?)?;
    let of_child = fleet.why(&admin, &["configmap", "a"]).await?;

    ensure!(!of_parent.is_empty());
    ensure!(
        of_parent.iter().all(|it| is_from(it, &replica)),
        "{of_parent:#?}"
    );
    ensure!(of_child.code == 0, "{of_child:?}");
    let told = format!("wrote: create ConfigMap {}/a", fleet.stage.namespace);
    ensure!(of_child.text.contains(&told), "{of_child:?}");
    ensure!(
        of_child.text.contains(&format!(" on {}\n", replica.name())),
        "{of_child:?}"
    );
    ensure!(of_child.errors.is_empty(), "{of_child:?}");
    // Also without being told where the replicas are.
    let found = admin.runs(["why", "thing/p", "-o", "json", "-n", &fleet.stage.namespace]);
    ensure!(syncs(&found.await?)?.iter().any(|it| is_from(it, &replica)));
    // What is gone is remembered by its name.
    fleet.stage.objects(THING).delete("p").await?;
    fleet.stage.objects(THING).goes("p").await?;
    ensure!(!syncs(&fleet.why(&admin, &["thing/p", "-o", "json"]).await?)?.is_empty());
    Ok(())
}

#[tokio::test]
async fn status_wide_tells_the_last_sync_as_the_replica_remembers_it() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::new("asking-status").await? else {
        return Ok(());
    };
    let _replica = fleet.replica("one").await?;
    fleet.parent().await?;
    let admin = User::admin(fleet.stage.shared)?;
    let name = fleet.stage.namespace.as_str();
    let status = [
        "status",
        name,
        "-o",
        "wide",
        "--system-namespace",
        &fleet.system,
    ];

    // The parent has come to rest; of its last sync only the begin was seen.
    eventually("the last sync to be told", async || {
        let ran = admin.runs(status).await?;
        ensure!(ran.code == 0 && ran.errors.is_empty(), "{ran:?}");
        let lines: Vec<_> = ran.text.lines().collect();
        let column = lines[0].find("LAST SYNC").context("a column")?;
        let last = lines[1].get(column..).unwrap_or_default();
        ensure!(
            last.starts_with("unchanged ") && last.ends_with("s ago"),
            "{ran:?}"
        );
        Ok(())
    })
    .await?;
    // Who may ask nobody sees all the rest.
    let user = User::named(fleet.stage.shared, &format!("{name}-blind"))?;
    let controllers =
        json!([{ "apiGroups": ["metacontroller.k8s.io"], "resources": ["*"], "verbs": ["list"] }]);
    bind(
        &fleet.stage.client,
        None,
        (&format!("{name}-blind"), "controllers"),
        controllers,
    )
    .await?;
    eventually("rights to count", async || {
        let blind = user.runs(status).await?;
        ensure!(blind.code == 0 && blind.text.contains(name), "{blind:?}");
        let left_out = "last syncs are left out: ";
        ensure!(blind.errors.contains(left_out), "{blind:?}");
        let cannot = "cannot get resource \"shardmaps\"";
        ensure!(blind.errors.contains(cannot), "{blind:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_an_earlier_owner_remembers_is_told_too_and_who_remembers_it() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::new("asking-two").await? else {
        return Ok(());
    };
    let first = fleet.replica("first").await?;
    fleet.parent().await?;
    let second = fleet.replica("second").await?;
    let admin = User::admin(fleet.stage.shared)?;
    // It sleeps past its Lease, loses all its shards, and comes back with what it remembers.
    first.signal(Signal::STOP)?;
    let moved = eventually("the other replica to take over", async || {
        let ran = fleet.why(&admin, &["thing/p", "-o", "json", "--limit=100"]);
        let syncs = syncs(&ran.await?)?;
        let is_move = |it: &&Value| {
            let causes = it["causes"].as_array();
            is_from(it, &second) && causes.is_some_and(|it| it.contains(&"shard_move".into()))
        };
        let found = syncs.iter().find(is_move).cloned();
        found.with_context(|| format!("there are {syncs:#?}"))
    })
    .await;
    first.signal(Signal::CONT)?;
    moved?;

    eventually("both to tell", async || {
        let ran = fleet
            .why(&admin, &["thing/p", "-o", "json", "--limit=100"])
            .await?;
        let syncs = syncs(&ran)?;
        for replica in [&first, &second] {
            ensure!(syncs.iter().any(|it| is_from(it, replica)), "{syncs:#?}");
        }
        Ok(())
    })
    .await
}

/// A user is refused for this, once the rights that there are count; what is said then.
async fn is_refused(fleet: &Fleet, user: &User, cannot: &str) -> anyhow::Result<String> {
    eventually(cannot, async || {
        let ran = fleet.why(user, &["thing/p"]).await?;
        ensure!(ran.code > 1 && ran.errors.contains(cannot), "{ran:?}");
        Ok(ran.errors)
    })
    .await
}

#[tokio::test]
async fn who_may_not_use_the_proxy_is_told_the_verb_and_the_resource() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::new("asking-poor").await? else {
        return Ok(());
    };
    let replica = fleet.replica("one").await?;
    fleet.parent().await?;
    let stage = &fleet.stage;
    let name = stage.namespace.clone();
    let user = User::named(stage.shared, &name)?;
    let read = |group: &str, resource: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": ["get", "list"] });
    let here = json!([read("test.metashard.io", "things")]);
    bind(&stage.client, Some(&name), (&name, "things"), here).await?;
    let controllers = json!([read("metacontroller.k8s.io", "*")]);
    bind(&stage.client, None, (&name, "controllers"), controllers).await?;

    is_refused(&fleet, &user, "cannot get resource \"shardmaps\"").await?;
    bind(
        &stage.client,
        Some(&fleet.system),
        (&name, "maps"),
        json!([read("metashard.io", "shardmaps")]),
    )
    .await?;
    let errors = is_refused(&fleet, &user, "cannot get resource \"pods/proxy\"").await?;
    let place = format!("in the namespace \"{}\"", fleet.system);
    ensure!(errors.contains(&place), "{errors}");

    let proxy = json!([
        read("", "pods/proxy"),
        read("", "pods"),
        read("coordination.k8s.io", "leases")
    ]);
    bind(&stage.client, Some(&fleet.system), (&name, "proxy"), proxy).await?;
    let told = eventually("rights to count", async || {
        syncs(&fleet.why(&user, &["thing/p", "-o", "json"]).await?)
    })
    .await?;
    ensure!(told.iter().all(|it| is_from(it, &replica)), "{told:#?}");
    Ok(())
}

#[tokio::test]
async fn an_object_that_no_controller_knows_is_said_to_be_none() -> anyhow::Result<()> {
    let Some(fleet) = Fleet::new("asking-stranger").await? else {
        return Ok(());
    };
    let _replica = fleet.replica("one").await?;
    let maps = fleet.stage.objects(CONFIG_MAP);
    maps.create(config_map("stranger", json!({}))).await?;
    let admin = User::admin(fleet.stage.shared)?;

    let stranger = fleet.why(&admin, &["configmap/stranger"]).await?;
    let typo = fleet.why(&admin, &["configmap/strangr"]).await?;
    let kind = fleet.why(&admin, &["configmpa/stranger"]).await?;

    ensure!(stranger.code > 1, "{stranger:?}");
    ensure!(
        stranger
            .errors
            .contains("is neither a parent of a controller"),
        "{stranger:?}"
    );
    ensure!(typo.code > 1, "{typo:?}");
    ensure!(typo.errors.contains("did you mean stranger?"), "{typo:?}");
    ensure!(kind.errors.contains("did you mean configmaps?"), "{kind:?}");
    let map = objects_in(&fleet.stage, SHARD_MAP, &fleet.system)
        .get("metashard")
        .await?;
    ensure!(map["spec"]["shardCount"].as_u64() > Some(0));
    Ok(())
}
