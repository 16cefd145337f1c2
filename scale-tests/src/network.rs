//! A machine for each replica, as far as the network goes: a namespace with three links, which can be cut one by one.
//!
//! One link leads to the API server, one to the hooks (and to whoever scrapes metrics), one to the other replicas. A cut
//! link loses every packet in both directions and tells nobody, as a broken switch would: its port of the bridge is disabled.
//! What is made here is gone with the process that made it, SIGKILL included.

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, ensure};

/// Waits until its standard input ends, then removes namespaces `$1` and links `$2`.
const SWEEP: &str = r#"trap "" HUP INT TERM; cat >/dev/null; for it in $1; do ip netns del "$it"; done 2>/dev/null; for it in $2; do ip link del "$it"; done 2>/dev/null"#;

/// First two bytes of all addresses.
const PREFIX: &str = "10.213";

/// One of the links of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    /// To the API server.
    Api,
    /// To hooks, and from whoever measures.
    Hook,
    /// To other replicas.
    Peers,
}

/// Three bridges, and namespaces that hang on each.
#[derive(Debug)]
pub(crate) struct Network {
    /// Begins all names.
    id: String,
    /// Third byte of the first bridge's addresses.
    base: u8,
    sweeper: Child,
}

impl Link {
    const ALL: [Self; 3] = [Self::Api, Self::Hook, Self::Peers];

    const fn letter(self) -> char {
        match self {
            Self::Api => 'a',
            Self::Hook => 'h',
            Self::Peers => 'p',
        }
    }
}

impl Network {
    /// Makes `places` namespaces.
    ///
    /// # Errors
    /// If iproute2 or the right is missing.
    pub(crate) fn new(places: usize) -> anyhow::Result<Self> {
        ensure!(places <= 100, "at most 100 namespaces");
        let id = format!("ms{}", std::process::id() % 1_000_000);
        let base = free_base()?;
        let links = Link::ALL.map(|link| format!("{id}{}", link.letter()));
        let namespaces: Vec<String> = (0..places).map(|place| format!("{id}-{place}")).collect();
        let mut all = links.to_vec();
        for place in 0..places {
            all.extend(Link::ALL.map(|link| port(&id, place, link)));
        }
        let sweeper = Command::new("sh")
            .args(["-c", SWEEP, "scale-tests"])
            .args([namespaces.join(" "), all.join(" ")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn_apart()
            .context("start the sweeper of a network")?;
        let this = Self { id, base, sweeper };
        this.build(places)?;
        Ok(this)
    }

    fn build(&self, places: usize) -> anyhow::Result<()> {
        let id = &self.id;
        let mut root = String::new();
        for link in Link::ALL {
            let bridge = format!("{id}{}", link.letter());
            writeln!(root, "link add {bridge} type bridge")?;
            writeln!(root, "addr add {}/24 dev {bridge}", self.here(link))?;
            writeln!(root, "link set {bridge} up")?;
        }
        for place in 0..places {
            writeln!(root, "netns add {id}-{place}")?;
        }
        ip(&[], &root)?;
        for place in 0..places {
            let (mut root, mut inner) = (String::new(), String::from("link set lo up\n"));
            for link in Link::ALL {
                let (port, letter) = (port(id, place, link), link.letter());
                writeln!(
                    root,
                    "link add {port} type veth peer name to-{letter} netns {id}-{place}"
                )?;
                writeln!(root, "link set {port} master {id}{letter} up")?;
                writeln!(
                    inner,
                    "addr add {}/24 dev to-{letter}",
                    self.at(place, link)
                )?;
                writeln!(inner, "link set to-{letter} up")?;
            }
            ip(&[], &root)?;
            ip(&["-n", &self.namespace(place)], &inner)?;
        }
        Ok(())
    }

    /// Name of a namespace.
    pub(crate) fn namespace(&self, place: usize) -> String {
        format!("{}-{place}", self.id)
    }

    /// Our own address on a link.
    pub(crate) fn here(&self, link: Link) -> String {
        self.address(link, 1)
    }

    /// The address of a namespace on a link.
    pub(crate) fn at(&self, place: usize, link: Link) -> String {
        self.address(link, 10 + place)
    }

    fn address(&self, link: Link, last: usize) -> String {
        let third = usize::from(self.base) + link as usize;
        format!("{PREFIX}.{third}.{last}")
    }

    /// Loses everything on a link from now on.
    pub(crate) fn cut(&self, place: usize, link: Link) -> anyhow::Result<()> {
        self.set(place, link, "0")
    }

    /// The link is as before.
    pub(crate) fn mend(&self, place: usize, link: Link) -> anyhow::Result<()> {
        self.set(place, link, "3")
    }

    fn set(&self, place: usize, link: Link, state: &str) -> anyhow::Result<()> {
        let port = port(&self.id, place, link);
        let output = Command::new("bridge")
            .args(["link", "set", "dev", &port, "state", state])
            .output()
            .context("run bridge")?;
        let problem = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "set link {port}: {problem}");
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        drop(self.sweeper.wait());
    }
}

/// A process that an interrupt at the terminal does not reach.
trait Apart {
    fn spawn_apart(&mut self) -> std::io::Result<Child>;
}

impl Apart for Command {
    fn spawn_apart(&mut self) -> std::io::Result<Child> {
        std::os::unix::process::CommandExt::process_group(self, 0).spawn()
    }
}

fn port(id: &str, place: usize, link: Link) -> String {
    format!("{id}{}{place}", link.letter())
}

/// Where three networks in a row are not in use.
fn free_base() -> anyhow::Result<u8> {
    let output = Command::new("ip").args(["-o", "-4", "address"]).output();
    let output = output.context("run ip, of iproute2")?;
    let used = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = u8::try_from(std::process::id() % 80)?;
    let mut bases = (0..80).map(|it| (first + it) % 80 * 3);
    let is_free = |base: u8| (base..base + 3).all(|it| !used.contains(&format!(" {PREFIX}.{it}.")));
    bases
        .find(|base| is_free(*base))
        .context("find a free network")
}

/// Runs lines as commands of `ip`.
fn ip(flags: &[&str], lines: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip")
        .args(flags)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("run ip, of iproute2")?;
    let mut input = child.stdin.take().context("talk to ip")?;
    input.write_all(lines.as_bytes()).context("talk to ip")?;
    drop(input);
    let output = child.wait_with_output().context("wait for ip")?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "make a network: {problem}");
    Ok(())
}
