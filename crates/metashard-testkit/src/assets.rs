//! Finding the binaries of a Kubernetes control plane.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

/// The version that `cargo xtask kubernetes` builds when none is asked for; pinned in `tests/kubernetes/go.mod`.
pub const DEFAULT_VERSION: &str = "1.36.3";

/// Oldest minor version that metashard supports.
const OLDEST_MINOR: u32 = 34;

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// The binaries of one control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assets {
    /// `etcd`.
    pub etcd: PathBuf,
    /// `kube-apiserver`.
    pub api_server: PathBuf,
    /// `kube-controller-manager`; tools that fetch test binaries often leave it out.
    pub controller_manager: Option<PathBuf>,
    /// Where they were found, for people.
    pub origin: String,
}

/// What a search asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Exactly this version; `None`: any supported one, preferring what the user chose by the environment.
    pub version: Option<String>,
    /// Whether kube-controller-manager is needed too.
    pub controller_manager: bool,
}

/// Where binaries may be.
#[derive(Debug, Clone)]
struct Places {
    /// `$KUBEBUILDER_ASSETS`.
    assets: Option<PathBuf>,
    /// The folder that holds one folder a version.
    cache: PathBuf,
    /// The folders of `$PATH`.
    path: Vec<PathBuf>,
    /// The folder that setup-envtest downloads into.
    store: PathBuf,
}

impl Assets {
    /// Looks in `$KUBEBUILDER_ASSETS`, the [cache](cache_folder), `$PATH` and the store of setup-envtest, in this order.
    /// If a version is wanted, only in the cache and the store: nothing says which version the others hold.
    ///
    /// # Errors
    /// If no place holds all that is wanted; the text says how to build it.
    pub fn find(wanted: &Wanted) -> anyhow::Result<Self> {
        let places = Places::of_this_machine()?;
        if let Some(found) = places.find(wanted) {
            return Ok(found);
        }
        let version = wanted.version.as_deref().unwrap_or(DEFAULT_VERSION);
        bail!(
            "find etcd, kube-apiserver{} {version}: neither in $KUBEBUILDER_ASSETS, {}, $PATH nor {}; \
             build them with `cargo xtask kubernetes --version {version}`",
            if wanted.controller_manager {
                ", kube-controller-manager"
            } else {
                ""
            },
            places.cache.display(),
            places.store.display(),
        );
    }

    fn in_folder(folder: &Path, wanted: &Wanted, origin: &str) -> Option<Self> {
        let binary = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
        let controller_manager = binary(CONTROLLER_MANAGER);
        if wanted.controller_manager && controller_manager.is_none() {
            return None;
        }
        Some(Self {
            etcd: binary(ETCD)?,
            api_server: binary(API_SERVER)?,
            controller_manager,
            origin: format!("{origin} ({})", folder.display()),
        })
    }
}

impl Places {
    fn of_this_machine() -> anyhow::Result<Self> {
        let store = match env::var_os("XDG_DATA_HOME").filter(|it| !it.is_empty()) {
            Some(data) => PathBuf::from(data).join("kubebuilder-envtest"),
            None if cfg!(target_os = "macos") => {
                home()?.join("Library/Application Support/io.kubebuilder.envtest")
            }
            None => home()?.join(".local/share/kubebuilder-envtest"),
        };
        Ok(Self {
            assets: env::var_os("KUBEBUILDER_ASSETS")
                .filter(|it| !it.is_empty())
                .map(PathBuf::from),
            cache: cache_folder()?,
            path: env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect(),
            store: store.join("k8s"),
        })
    }

    fn find(&self, wanted: &Wanted) -> Option<Assets> {
        let cached = self
            .cache
            .join(wanted.version.as_deref().unwrap_or(DEFAULT_VERSION));
        let in_cache = || Assets::in_folder(&cached, wanted, "cache");
        let in_store = || {
            let folder = newest_in_store(&self.store, wanted.version.as_deref())?;
            Assets::in_folder(&folder, wanted, "setup-envtest")
        };
        if wanted.version.is_some() {
            return in_cache().or_else(in_store);
        }
        self.assets
            .as_deref()
            .and_then(|folder| Assets::in_folder(folder, wanted, "KUBEBUILDER_ASSETS"))
            .or_else(in_cache)
            .or_else(|| self.in_path(wanted))
            .or_else(in_store)
    }

    fn in_path(&self, wanted: &Wanted) -> Option<Assets> {
        self.path
            .iter()
            .find_map(|folder| Assets::in_folder(folder, wanted, "PATH"))
    }
}

/// The folder into which `cargo xtask kubernetes` builds, one folder a version:
/// `metashard/kubernetes` in `$XDG_CACHE_HOME`, else in `~/.cache`.
///
/// # Errors
/// If neither `$XDG_CACHE_HOME` nor `$HOME` is set.
pub fn cache_folder() -> anyhow::Result<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME").filter(|it| !it.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => home()?.join(".cache"),
    };
    Ok(cache.join("metashard").join("kubernetes"))
}

fn home() -> anyhow::Result<PathBuf> {
    env::var_os("HOME")
        .filter(|it: &OsString| !it.is_empty())
        .map(PathBuf::from)
        .context("read $HOME, the place of the cache of Kubernetes binaries")
}

/// The store has folders such as `1.36.0-linux-amd64`.
fn newest_in_store(store: &Path, version: Option<&str>) -> Option<PathBuf> {
    std::fs::read_dir(store)
        .ok()?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let (number, _platform) = name.split_once('-')?;
            let parts: Vec<u32> = number.split('.').map_while(|it| it.parse().ok()).collect();
            let right = match version {
                Some(version) => version == number,
                None => parts.len() == 3 && (parts[0], parts[1]) >= (1, OLDEST_MINOR),
            };
            right.then(|| (parts, store.join(name)))
        })
        .max()
        .map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const BOTH: &[&str] = &[ETCD, API_SERVER];
    const ALL: &[&str] = &[ETCD, API_SERVER, CONTROLLER_MANAGER];

    fn places(root: &Path) -> Places {
        Places {
            assets: Some(root.join("assets")),
            cache: root.join("cache"),
            path: vec![root.join("bin"), root.join("sbin")],
            store: root.join("store"),
        }
    }

    fn put(folder: &Path, names: &[&str]) {
        fs::create_dir_all(folder).unwrap();
        for name in names {
            fs::write(folder.join(name), "").unwrap();
        }
    }

    fn origin(places: &Places, wanted: &Wanted) -> Option<String> {
        let found = places.find(wanted)?;
        Some(found.etcd.parent()?.file_name()?.to_str()?.to_owned())
    }

    #[test]
    fn the_users_choice_comes_before_the_cache_the_path_and_the_store() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        let any = Wanted::default();
        let mut seen = Vec::new();

        assert_eq!(origin(&places, &any), None);
        put(&places.store.join("1.36.0-linux-amd64"), BOTH);
        seen.extend(origin(&places, &any));
        put(&places.path[1], BOTH);
        seen.extend(origin(&places, &any));
        put(&places.cache.join(DEFAULT_VERSION), BOTH);
        seen.extend(origin(&places, &any));
        put(places.assets.as_ref().unwrap(), BOTH);
        seen.extend(origin(&places, &any));

        assert_eq!(seen, ["1.36.0-linux-amd64", "sbin", "1.36.3", "assets"]);
    }

    #[test]
    fn a_folder_without_the_controller_manager_is_passed_over_when_it_is_needed() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        put(places.assets.as_ref().unwrap(), BOTH);
        put(&places.cache.join(DEFAULT_VERSION), ALL);

        let wanted = Wanted {
            controller_manager: true,
            ..Wanted::default()
        };

        assert_eq!(origin(&places, &wanted).as_deref(), Some(DEFAULT_VERSION));
    }

    #[test]
    fn a_wanted_version_is_never_answered_with_another() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path());
        put(places.assets.as_ref().unwrap(), BOTH);
        put(&places.cache.join(DEFAULT_VERSION), BOTH);
        put(&places.store.join("1.35.1-linux-amd64"), BOTH);
        let version = |text: &str| Wanted {
            version: Some(text.to_owned()),
            ..Wanted::default()
        };

        assert_eq!(origin(&places, &version("1.34.4")), None);
        assert_eq!(
            origin(&places, &version("1.35.1")).as_deref(),
            Some("1.35.1-linux-amd64")
        );
    }

    #[test]
    fn the_store_offers_its_newest_supported_version() {
        let root = tempfile::tempdir().unwrap();
        let store = root.path();
        for name in [
            "1.9.0-linux-amd64",
            "1.36.0-linux-amd64",
            "1.36.11-linux-amd64",
            "junk",
        ] {
            put(&store.join(name), BOTH);
        }

        assert_eq!(
            newest_in_store(store, None),
            Some(store.join("1.36.11-linux-amd64"))
        );
    }

    #[test]
    fn the_default_version_is_the_one_that_the_go_module_pins() {
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kubernetes/go.mod");
        let text = fs::read_to_string(module).unwrap();

        assert!(text.contains(&format!("k8s.io/kubernetes v{DEFAULT_VERSION}")));
    }
}
