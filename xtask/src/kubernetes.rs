//! Builds the binaries of a Kubernetes control plane from the Go modules that `tests/kubernetes` pins, once a version,
//! into the user's cache folder.

mod module;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use metashard_testkit::assets::{Assets, DEFAULT_VERSION, Wanted, cache_folder};
use tokio::time::Instant;

use crate::talk::{self, say};
use module::Module;

const API_SERVER: &str = "k8s.io/kubernetes/cmd/kube-apiserver";
const CONTROLLER_MANAGER: &str = "k8s.io/kubernetes/cmd/kube-controller-manager";
const ETCD: &str = "go.etcd.io/etcd/server/v3";

/// The minor versions that metashard supports.
const MINORS: std::ops::RangeInclusive<u32> = 34..=37;

/// Which version to build.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Exactly this version; tested are 1.34.4, 1.35.4, 1.36.3 and 1.37.2.
    /// Without it any supported version that is there will do, else 1.36.3 is built.
    #[arg(long, value_parser = supported)]
    version: Option<String>,
}

/// Finds all three binaries, or builds them first, and says where they are.
///
/// # Errors
/// As [`find_or_build`].
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let found = find_or_build(&Wanted {
        version: options.version.clone(),
        controller_manager: true,
    })?;
    say(&format!("Kubernetes binaries: {}", found.origin));
    Ok(())
}

/// Finds the wanted binaries, or builds them first.
///
/// # Errors
/// If Go is missing or too old, a module cannot be had, or the build fails.
pub(crate) fn find_or_build(wanted: &Wanted) -> anyhow::Result<Assets> {
    if let Ok(found) = Assets::find(wanted) {
        return Ok(found);
    }
    let version = wanted.version.as_deref().unwrap_or(DEFAULT_VERSION);
    let cache = cache_folder()?;
    fs::create_dir_all(&cache).with_context(|| format!("make {}", cache.display()))?;
    let lock = lock(&cache)?;
    // Somebody else may have built them while we waited.
    if Assets::find(wanted).is_err() {
        build(version, &cache)?;
    }
    drop(lock);
    Assets::find(wanted)
}

/// Any supported version: `1.36.3`.
fn supported(text: &str) -> Result<String, String> {
    let parts: Vec<Option<u32>> = text.split('.').map(|it| it.parse().ok()).collect();
    match parts[..] {
        [Some(1), Some(minor), Some(_)] if MINORS.contains(&minor) => Ok(text.to_owned()),
        _ => Err(format!(
            "not a version from 1.{}.0 to 1.{}.x",
            MINORS.start(),
            MINORS.end()
        )),
    }
}

/// Held while building; the operating system lets go of it when this process ends.
fn lock(cache: &Path) -> anyhow::Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
    if file.try_lock().is_err() {
        say("waiting for another build of the Kubernetes binaries");
        file.lock()
            .with_context(|| format!("lock {}", path.display()))?;
    }
    Ok(file)
}

fn build(version: &str, cache: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    say(&format!(
        "building etcd, kube-apiserver and kube-controller-manager {version} (once; minutes)"
    ));
    let unfinished = cache.join(format!(".unfinished-{version}"));
    drop(fs::remove_dir_all(&unfinished));
    fs::create_dir_all(&unfinished).with_context(|| format!("make {}", unfinished.display()))?;

    let module = Module::of(version)?;
    compile(
        &module,
        &[API_SERVER, CONTROLLER_MANAGER],
        &stamp(version),
        &unfinished.join(""),
    )?;
    // etcd is the same for all versions: its own Go module would be pulled up or down by theirs.
    compile(
        &Module::pinned(),
        &[ETCD],
        "-s -w",
        &unfinished.join("etcd"),
    )?;

    let folder = cache.join(version);
    drop(fs::remove_dir_all(&folder));
    fs::rename(&unfinished, &folder)
        .with_context(|| format!("put {} in place", folder.display()))?;
    say(&format!("built in {}", talk::length(start.elapsed())));
    Ok(())
}

/// Linker flags: no debug information, and the version that the server reports.
fn stamp(version: &str) -> String {
    let mut parts = version.split('.');
    let major = parts.next().unwrap_or_default();
    let minor = parts.next().unwrap_or_default();
    let variable = "-X k8s.io/component-base/version.";
    format!(
        "-s -w {variable}gitVersion=v{version} {variable}gitMajor={major} {variable}gitMinor={minor}"
    )
}

/// Compiles `packages` to `target`: a folder, if its path ends in a slash.
fn compile(module: &Module, packages: &[&str], linker: &str, target: &Path) -> anyhow::Result<()> {
    let names: Vec<&str> = packages
        .iter()
        .map(|it| it.trim_end_matches("/v3").rsplit('/').next().unwrap_or(it))
        .collect();
    let total = count_packages(module, packages)?;
    let bar = talk::bar(total, "compiling");
    let mut go = module.go();
    go.args(["build", "-v", "-trimpath", "-ldflags", linker, "-o"])
        .arg(target)
        .args(packages);
    let outcome = follow(&mut go, |line| {
        bar.inc(1);
        bar.set_message(line.to_owned());
        if bar.position() >= total.saturating_sub(2) {
            bar.set_message(format!("linking {}", names.join(", ")));
        }
    });
    bar.finish_and_clear();
    outcome.with_context(|| format!("compile {}", packages.join(", ")))
}

/// Number of packages that a build has to look at. The first call also downloads the modules.
fn count_packages(module: &Module, packages: &[&str]) -> anyhow::Result<u64> {
    let spinner = talk::spinner("downloading Go modules");
    let mut count = 0;
    let mut go = module.go();
    go.args(["list", "-deps"]).args(packages);
    go.stdout(Stdio::piped());
    let outcome = follow_both(
        &mut go,
        |_| count += 1,
        |line| spinner.set_message(line.trim_start_matches("go: ").to_owned()),
    );
    spinner.finish_and_clear();
    outcome.context("list the packages to compile")?;
    Ok(count)
}

/// Runs a command, telling each line that it says on standard error.
fn follow(command: &mut Command, on_line: impl FnMut(&str)) -> anyhow::Result<()> {
    command.stdout(Stdio::null());
    follow_both(command, |_| {}, on_line)
}

/// Runs a command, telling the lines of standard output after those of standard error.
fn follow_both(
    command: &mut Command,
    mut on_output: impl FnMut(&str),
    mut on_line: impl FnMut(&str),
) -> anyhow::Result<()> {
    const KEPT: usize = 30;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = match command.stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "find Go: install it from https://go.dev/dl, or set KUBEBUILDER_ASSETS to a folder with \
             etcd, kube-apiserver and kube-controller-manager"
        ),
        Err(error) => return Err(error).with_context(|| format!("run {program}")),
    };
    // Read at the same time as standard error: a full pipe would stop the child.
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || -> Vec<String> {
        let lines = output.into_iter().flat_map(|it| BufReader::new(it).lines());
        lines.map_while(Result::ok).collect()
    });
    let mut last: Vec<String> = Vec::new();
    for line in BufReader::new(child.stderr.take().context("read standard error")?).lines() {
        let line = line.with_context(|| format!("read what {program} says"))?;
        on_line(&line);
        last.push(line);
        if last.len() > KEPT {
            last.remove(0);
        }
    }
    let status = child
        .wait()
        .with_context(|| format!("wait for {program}"))?;
    ensure!(status.success(), "{program}: {status}\n{}", last.join("\n"));
    for line in reader.join().unwrap_or_default() {
        on_output(&line);
    }
    Ok(())
}

/// The folder of the Go module that pins the versions.
fn pinned_folder() -> PathBuf {
    crate::repository::root().join("tests").join("kubernetes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_of_supported_minors_are_built() {
        let accepted = ["1.34.0", "1.37.12"].map(|it| supported(it).is_ok());
        let refused = ["1.33.9", "1.38.0", "2.36.1", "1.36", "v1.36.3", "latest"]
            .map(|it| supported(it).is_ok());

        assert_eq!((accepted, refused), ([true; 2], [false; 6]));
    }

    #[test]
    fn the_server_is_told_which_version_it_is() {
        let flags = stamp("1.35.4");

        assert!(flags.contains("version.gitVersion=v1.35.4 "), "{flags}");
        assert!(flags.ends_with("version.gitMinor=35"), "{flags}");
    }
}
