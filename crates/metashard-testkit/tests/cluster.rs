//! A cluster of the test kit: quick to start, private, and gone with its process.

use std::{
    env,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use metashard_testkit::{
    Cluster,
    cluster::{ADMIN, Options},
    wait::eventually,
};
use tokio::time::Instant;

const SECONDS: Duration = Duration::from_secs(1);

/// Set in a child process: the test that holds a cluster open until it is killed.
const HOLD: &str = "METASHARD_TESTKIT_HOLD";

/// On a machine that does nothing else it takes less than a quarter of this.
const READY_SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_cluster_is_ready_soon() -> anyhow::Result<()> {
    let start = Instant::now();

    let cluster = Cluster::start(Options::default()).await?;
    let took = start.elapsed();

    let version = cluster.admin().await?.apiserver_version().await?;
    assert!(took < READY_SOON, "{} took {took:?}", version.git_version);
    Ok(())
}

#[tokio::test]
async fn a_user_without_a_role_is_refused() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let namespace = cluster.namespace("rights").await?;

    let stranger: Api<ConfigMap> = Api::namespaced(cluster.client("stranger").await?, &namespace);
    let refused = stranger.list(&ListParams::default()).await;
    let admin: Api<ConfigMap> = Api::namespaced(cluster.client(ADMIN).await?, &namespace);
    admin.list(&ListParams::default()).await?;

    let text = refused.map(|_| ()).unwrap_err().to_string();
    assert!(
        text.contains(r#"User "stranger" cannot list resource "configmaps""#),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn objects_survive_a_crash_and_a_restart_of_the_api_server() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let namespaces: Api<Namespace> = Api::all(cluster.admin().await?);
    let name = cluster.namespace("kept").await?;

    cluster.kill_api_server().await?;
    let gone = namespaces.get(&name).await;
    cluster.start_api_server().await?;
    let after_crash = namespaces.get(&name).await;
    cluster.restart_api_server().await?;
    let after_restart = namespaces.get(&name).await;

    assert!(gone.is_err());
    after_crash?;
    after_restart?;
    Ok(())
}

#[tokio::test]
async fn the_audit_log_tells_who_did_what() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options {
        audit: true,
        ..Options::default()
    })
    .await?;

    let name = cluster.namespace("audited").await?;

    eventually(20 * SECONDS, "the line about it", async || {
        let found = cluster.audit_events()?.into_iter().any(|event| {
            event["verb"] == "create"
                && event["user"]["username"] == ADMIN
                && event["objectRef"]["name"] == *name
        });
        ensure!(found, "there is none");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_controller_manager_makes_service_accounts_and_clears_namespaces() -> anyhow::Result<()>
{
    let options = Options {
        controller_manager: true,
        ..Options::default()
    };
    let cluster = Cluster::start(options).await?;
    let client = cluster.admin().await?;
    let name = cluster.namespace("managed").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
    let namespaces: Api<Namespace> = Api::all(client);

    eventually(20 * SECONDS, "the default ServiceAccount", async || {
        Ok(accounts.get("default").await?)
    })
    .await?;
    namespaces.delete(&name, &DeleteParams::default()).await?;
    eventually(30 * SECONDS, "the end of the namespace", async || {
        ensure!(
            namespaces.get_opt(&name).await?.is_none(),
            "it is still there"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_left_after_a_drop() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let folder = cluster.folder().to_owned();
    assert_eq!(
        processes_that_name(&folder)?.len(),
        3,
        "etcd, kube-apiserver, supervisor"
    );

    drop(cluster);

    assert_eq!(processes_that_name(&folder)?, Vec::<String>::new());
    assert!(!folder.exists());
    Ok(())
}

#[tokio::test]
async fn nothing_is_left_after_the_test_process_was_killed() -> anyhow::Result<()> {
    let mut holder = Holder::start()?;
    let folder = holder.folder()?;
    assert_eq!(
        processes_that_name(&folder)?.len(),
        4,
        "as above, and a stopped one"
    );

    holder.0.kill()?;
    holder.0.wait()?;

    eventually(20 * SECONDS, "the end of all its processes", async || {
        let left = processes_that_name(&folder)?;
        ensure!(left.is_empty(), "still running: {left:?}");
        ensure!(!folder.exists(), "{} is still there", folder.display());
        Ok(())
    })
    .await
}

/// No test by itself: what the child process of the test above does.
#[tokio::test]
async fn holds_a_cluster_until_it_is_killed() -> anyhow::Result<()> {
    if env::var_os(HOLD).is_none() {
        return Ok(());
    }
    let cluster = Cluster::start(Options::default()).await?;
    let mut stopped = Command::new("sh");
    stopped
        .args(["-c", "kill -s STOP $$"])
        .arg(cluster.folder());
    let mut stopped = cluster.group().spawn(&mut stopped, "stopped")?;
    println!("{HOLD}={}", cluster.folder().display());
    // Our input is a pipe that the parent never closes.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    stopped.wait()?;
    Ok(())
}

/// A copy of this test binary that runs only the function above.
struct Holder(Child);

impl Holder {
    fn start() -> anyhow::Result<Self> {
        let child = Command::new(env::current_exe()?)
            .args([
                "--exact",
                "holds_a_cluster_until_it_is_killed",
                "--nocapture",
            ])
            .env(HOLD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }

    fn folder(&mut self) -> anyhow::Result<PathBuf> {
        let output = self.0.stdout.take().context("take its output once")?;
        for line in BufReader::new(output).lines() {
            if let Some((_, folder)) = line?.split_once(&format!("{HOLD}=")) {
                return Ok(folder.into());
            }
        }
        anyhow::bail!("it ended without a cluster")
    }
}

/// Command lines of the processes that have `folder` in theirs; zombies have none.
fn processes_that_name(folder: &Path) -> anyhow::Result<Vec<String>> {
    let ps = Command::new("ps").args(["-A", "-o", "args="]).output()?;
    let folder = folder.to_str().context("read the folder's name")?;
    let text = String::from_utf8_lossy(&ps.stdout);
    Ok(text
        .lines()
        .filter(|line| line.contains(folder))
        .map(str::to_owned)
        .collect())
}
