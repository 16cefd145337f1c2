//! Three replicas share real controllers on a real API server, lose a worker, and carry on.

/// How to run the demo.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Without a person: converge, kill a worker, show the take-over, converge again, and end.
    #[arg(long)]
    once: bool,
    /// Use the cluster of this kubeconfig context in place of one started for the demo.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Runs the demo to its end.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    anyhow::bail!("the demo is not there yet: {options:?}")
}
