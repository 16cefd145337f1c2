//! The Go module from which a version is built.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, ensure};
use metashard_testkit::assets::DEFAULT_VERSION;
use serde_json::Value;

use super::{API_SERVER, CONTROLLER_MANAGER, pinned_folder};
use crate::{repository::output, talk};

/// A folder with a `go.mod` that requires one version of Kubernetes.
#[derive(Debug)]
pub(super) struct Module {
    folder: PathBuf,
    /// Keeps a generated folder until the build is over.
    _generated: Option<tempfile::TempDir>,
}

impl Module {
    /// The module of the repository, with a sum for everything that it uses.
    pub(super) fn pinned() -> Self {
        Self {
            folder: pinned_folder(),
            _generated: None,
        }
    }

    /// The module for `version`: the pinned one, or one made for it.
    pub(super) fn of(version: &str) -> anyhow::Result<Self> {
        if version == DEFAULT_VERSION {
            return Ok(Self::pinned());
        }
        let spinner = talk::spinner(&format!("resolving the modules of Kubernetes {version}"));
        let module = Self::generate(version);
        spinner.finish_and_clear();
        module.with_context(|| format!("make a Go module for Kubernetes {version}"))
    }

    fn generate(version: &str) -> anyhow::Result<Self> {
        let generated = tempfile::tempdir().context("make a folder")?;
        let this = Self {
            folder: generated.path().to_owned(),
            _generated: Some(generated),
        };
        let its_own = this.own_go_mod(version)?;
        fs::write(this.folder.join("go.mod"), go_mod(version, &its_own)?)
            .context("write go.mod")?;
        let tools = [API_SERVER, CONTROLLER_MANAGER].map(|it| format!("{it}@v{version}"));
        output(this.go().args(["get", "-tool"]).args(&tools))?;
        Ok(this)
    }

    /// Text of the `go.mod` that Kubernetes itself has in `version`.
    fn own_go_mod(&self, version: &str) -> anyhow::Result<String> {
        let wanted = format!("k8s.io/kubernetes@v{version}");
        let described = output(self.go().args(["mod", "download", "-json", &wanted]))?;
        let described: Value = serde_json::from_str(&described).context("read what go says")?;
        let path = described["GoMod"]
            .as_str()
            .context("find the go.mod of Kubernetes")?;
        fs::read_to_string(path).with_context(|| format!("read {path}"))
    }

    /// The `go` command in this module. Without cgo the binaries need nothing of the machine.
    pub(super) fn go(&self) -> Command {
        let mut go = Command::new("go");
        go.current_dir(&self.folder).env("CGO_ENABLED", "0");
        // A workspace file of the user must not change what is built.
        go.env("GOWORK", "off");
        go
    }
}

/// A `go.mod` that requires Kubernetes `version`. What its own `go.mod` takes from its staging folder is published as
/// modules of version 0, with the same minor and patch.
fn go_mod(version: &str, its_own: &str) -> anyhow::Result<String> {
    let staging = version.replacen("1.", "0.", 1);
    let go = its_own
        .lines()
        .find(|line| line.starts_with("go "))
        .context("find the Go version of Kubernetes")?;
    let mut text = format!(
        "module metashard.io/tests/kubernetes\n\n{go}\n\nrequire k8s.io/kubernetes v{version}\n\n"
    );
    let replaced = its_own.lines().filter_map(|line| {
        let (name, path) = line
            .trim()
            .trim_start_matches("replace ")
            .split_once(" => ")?;
        path.starts_with("./staging/").then_some(name)
    });
    let lines: Vec<String> = replaced
        .map(|name| format!("replace {name} => {name} v{staging}\n"))
        .collect();
    ensure!(!lines.is_empty(), "find the staging modules of Kubernetes");
    text.push_str(&lines.concat());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_folders_become_published_modules_of_the_same_release() {
        let its_own = "module k8s.io/kubernetes\n\ngo 1.25.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\
                       \tk8s.io/kubelet => ./staging/src/k8s.io/kubelet\n)\n";

        let text = go_mod("1.35.4", its_own).unwrap();

        assert!(
            text.contains("go 1.25.0\n\nrequire k8s.io/kubernetes v1.35.4\n"),
            "{text}"
        );
        assert!(text.ends_with("replace k8s.io/api => k8s.io/api v0.35.4\nreplace k8s.io/kubelet => k8s.io/kubelet v0.35.4\n"));
    }

    #[test]
    fn a_layout_that_we_do_not_know_is_an_error() {
        assert!(go_mod("1.35.4", "module k8s.io/kubernetes\n\ngo 1.25.0\n").is_err());
    }
}
