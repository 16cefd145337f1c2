//! Where the API server is and how to log in there.

use std::path::PathBuf;

use kube::{
    Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// How to reach the API server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A kubeconfig file. Default: found as [`super::Clients::connect`] says.
    pub kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig. Default: its current one.
    pub context: Option<String>,
    /// Most requests per second, watches, Leases and Events aside. `None`: unlimited, which is the default, since the
    /// API server has a fair queue of its own.
    pub qps: Option<f64>,
    /// Requests that may go out at once before `qps` counts. Default: 10, at least 1.
    pub burst: Option<u32>,
}

/// No usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be read or is incomplete.
    #[error("load kubeconfig {0}")]
    Kubeconfig(String, #[source] KubeconfigError),
    /// There is no kubeconfig, and the process does not run in a Pod.
    #[error(
        "find an API server: no --kubeconfig, no $KUBECONFIG, not in a Pod, and no usable ~/.kube/config"
    )]
    Nowhere(#[source] KubeconfigError),
    /// The Pod's service account files cannot be read.
    #[error("load the Pod's service account")]
    InCluster(#[source] InClusterError),
    /// The kubeconfig names a proxy.
    #[error("use proxy {0}: proxies are not supported, remove `proxy-url` from the kubeconfig")]
    Proxy(String),
    /// Certificates, keys or credentials cannot be used.
    #[error("prepare the connection to {host}")]
    Prepare {
        /// The API server.
        host: String,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// The address of the API server is not one.
    #[error("use {0} as the API server's address")]
    Address(String),
}

/// Loads the configuration.
pub(super) async fn load(path: Option<PathBuf>, context: Option<String>) -> Result<Config, Error> {
    let config = find(path, context).await?;
    match &config.proxy_url {
        Some(proxy) => Err(Error::Proxy(proxy.to_string())),
        None => Ok(config),
    }
}

async fn find(path: Option<PathBuf>, context: Option<String>) -> Result<Config, Error> {
    if let Some(path) = path {
        let shown = path.display().to_string();
        return match Kubeconfig::read_from(path) {
            Ok(kubeconfig) => from_kubeconfig(kubeconfig, context, shown).await,
            Err(error) => Err(Error::Kubeconfig(shown, error)),
        };
    }
    let from_env = || "of $KUBECONFIG".to_owned();
    if let Some(kubeconfig) =
        Kubeconfig::from_env().map_err(|error| Error::Kubeconfig(from_env(), error))?
    {
        return from_kubeconfig(kubeconfig, context, from_env()).await;
    }
    match Config::incluster_env() {
        Ok(config) => Ok(config),
        // Outside a Pod neither of the two variables is set.
        Err(InClusterError::ReadEnvironmentVariable(_)) => match Kubeconfig::read() {
            Ok(kubeconfig) => {
                from_kubeconfig(kubeconfig, context, "~/.kube/config".to_owned()).await
            }
            Err(error) => Err(Error::Nowhere(error)),
        },
        Err(error) => Err(Error::InCluster(error)),
    }
}

async fn from_kubeconfig(
    kubeconfig: Kubeconfig,
    context: Option<String>,
    shown: String,
) -> Result<Config, Error> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| Error::Kubeconfig(shown, error))
}
