//! The tenants' hooks: for each tenant and example one process.

use std::{
    collections::BTreeMap,
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context, ensure};
use metashard_testkit::{
    cluster::free_port, group::Group, loopback::get, replica::built, wait::eventually,
};

use crate::demo::tenants::{Example, TENANTS};

/// All hooks.
#[derive(Debug)]
pub(in crate::demo) struct Hooks(Vec<Hook>);

#[derive(Debug)]
struct Hook {
    tenant: &'static str,
    example: Example,
    port: u16,
    child: Child,
}

impl Hooks {
    /// Starts them and waits until they listen.
    pub(super) async fn start(group: &Group) -> anyhow::Result<Self> {
        let mut hooks = Vec::new();
        for tenant in TENANTS {
            for example in Example::ALL {
                let port = free_port()?;
                let mut command = Command::new(built(example.program())?);
                command.arg(format!("127.0.0.1:{port}"));
                let child =
                    group.spawn(&mut command, &format!("{tenant}-{}", example.program()))?;
                hooks.push(Hook {
                    tenant,
                    example,
                    port,
                    child,
                });
            }
        }
        for hook in &hooks {
            eventually(Duration::from_secs(10), "a hook to listen", async || {
                let (status, _) = get(hook.port, "/healthz").await?;
                ensure!(status == 200, "it answers {status}");
                Ok(())
            })
            .await?;
        }
        Ok(Self(hooks))
    }

    /// URL of the sync hook of an example for a tenant.
    pub(super) fn url(&self, tenant: &str, example: Example) -> anyhow::Result<String> {
        let hook = self
            .0
            .iter()
            .find(|it| it.tenant == tenant && it.example == example);
        let hook = hook.context("find a hook")?;
        Ok(format!("http://127.0.0.1:{}/sync", hook.port))
    }

    /// Calls so far, by controller.
    pub(super) async fn calls(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut calls = BTreeMap::new();
        for hook in &self.0 {
            let (_, body) = get(hook.port, "/calls").await?;
            let counts: BTreeMap<String, u64> =
                serde_json::from_str(&body).context("read the counts of a hook")?;
            calls.extend(counts);
        }
        Ok(calls)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
