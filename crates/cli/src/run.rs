//! `transom run`: runs a command in a Linux guest with directories of the host.

mod disk;
mod events;
mod examples;
mod finish;
mod hidden;
mod image;
mod keep;
mod late;
mod network;
mod overlays;
mod report;
mod signals;
pub(crate) mod values;
mod versions;
mod vmm;

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use transom_vm::{
    Error, GuestSpec, Input, Output, Result, Root, Share, ShareArg, Stdio, Vmm, mount_points,
    packages::{Cache, OnStderr},
    tools::{Tools, check_programs},
};

use examples::EXAMPLES;
use finish::Finish;
use image::Image;
use overlays::Overlays;
use values::{
    Accel, Tty, VmmName, default_cpus, guest_path, parse_memory_mib, parse_seconds, parse_user, parse_variable,
    parse_workdir,
};

/// Run a command in a Linux virtual machine with directories of the host
///
/// Boots a small guest, mounts the shares, runs COMMAND in the first share, and passes standard input, standard output,
/// standard error and the exit status through. Without COMMAND, starts a shell. Installs nothing, leaves nothing
/// behind, and does not need root.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Run {
    /// A directory of the host to share; may be repeated
    ///
    /// GUEST is the mount point in the guest: by default the same path as on the host with --root /, and /mnt/NAME
    /// otherwise. OPTION is `ro` for a read-only share, `overlay`, `cache=MODE` with the mode never, metadata, auto or
    /// always, `dax=SIZE` or `dax-mode=MODE`. Write a backslash before a colon or comma within a path. The first share
    /// is the working directory. A share inside another is mounted after it; two at one path, or one at /, are refused.
    ///
    /// With `overlay`, the guest can change everything in the directory, and the directory stays as it is. The changes
    /// are kept: a later run with `overlay` continues with them, `transom diff HOST` shows them, `transom commit HOST`
    /// writes them into the directory, and `transom discard HOST` throws them away. `overlay=host` lets only the host's
    /// kernel mount the overlay, `overlay=guest` the guest's; `overlay` alone uses the guest's where the host's cannot.
    ///
    /// `dax=SIZE`, as in dax=256M, gives the share a DAX window of that size, through which the guest maps the host's
    /// page cache: it reads and writes files without requests and without a second copy, and MAP_SHARED mappings are
    /// shared with the host. `dax-mode=always` maps every file; the default, `dax-mode=inode`, maps the files that the
    /// daemon selects. Needs QEMU 11.1 or newer, which is fetched as a package into the cache if it is not installed.
    #[arg(long = "share", short = 's', value_name = "HOST[:GUEST][,OPTION]...")]
    shares: Vec<OsString>,

    /// The guest's root: a directory of the host, `/` for the host's own root, or an image of a container
    ///
    /// It is shared read-only; what the guest writes stays in the guest's memory. /proc, /sys, /dev, /tmp and /run are
    /// the guest's own, and home directories and secret places of `/` are hidden: see --show. By default the root is a
    /// minimal one with busybox. Accepts `,cache=MODE`, as --share does.
    ///
    /// IMAGE is a tar of a root, an OCI layout, or an archive that `podman save`, `skopeo copy` or `docker save` has
    /// written. It is unpacked into the cache, once. Its variables, user and, without shares, working directory are the
    /// command's unless options say otherwise; without COMMAND, its own is run. Of several, `image=NAME` chooses one.
    #[arg(long, value_name = "DIR|IMAGE[,OPTION]...")]
    root: Option<OsString>,

    /// Hide a path of the host from the guest, in every share that contains it; may be repeated
    ///
    /// The guest can neither see, create nor replace it. With --root /, home directories and the secret places that
    /// docs/run.md lists are hidden without this option.
    #[arg(long, value_name = "PATH")]
    hide: Vec<PathBuf>,

    /// Show a path that --root / hides, and everything below it; may be repeated
    ///
    /// Secret places below it stay hidden unless they are shown too; `--show /` shows everything.
    #[arg(long, value_name = "PATH")]
    show: Vec<PathBuf>,

    /// The kernel: an image such as /boot/vmlinuz-…, or a series of Debian kernels such as 6.12
    ///
    /// The modules of an image are expected in ../lib/modules. The default is the cloud kernel of this machine's Debian
    /// release. It and other series are fetched as packages into the cache, without installing them. With --vmm uml,
    /// the kernel is the `linux` program, which is by default built from Debian's source; this happens once and takes
    /// some minutes.
    #[arg(long, value_name = "FILE|SERIES", env = "TRANSOM_KERNEL")]
    kernel: Option<PathBuf>,

    /// Number of virtual CPUs [default: those of this machine, at most 4]
    #[arg(long, value_name = "N", default_value_t = default_cpus(), hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: u32,

    /// Memory of the guest in MiB, or with a suffix K, M, G or T; at least 128M
    #[arg(long, short = 'm', value_name = "SIZE", default_value = "1G", value_parser = parse_memory_mib)]
    memory: u32,

    /// Keep what the guest writes outside of its shares on a disk of this size, and not in its memory
    ///
    /// Its root, with --root the changes of it, and /tmp: everything but /dev/shm and /run. The disk is a sparse file
    /// without a name in $TMPDIR, or /var/tmp, and gone at the end. Beyond SIZE, programs get ENOSPC.
    #[arg(long, value_name = "SIZE", value_parser = transom_size::parse)]
    scratch: Option<u64>,

    /// How the guest's instructions are run; `auto` uses KVM if it works
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    accel: Accel,

    /// The virtual machine monitor
    #[arg(long, value_enum, default_value_t = VmmName::Qemu)]
    vmm: VmmName,

    /// Set an environment variable for the command; may be repeated
    ///
    /// NAME alone passes on the value that it has here.
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,

    /// Run the command as this user of the guest instead of root
    ///
    /// Numbers, or, with --root, names of the root's /etc/passwd and /etc/group. Without GROUP, the user's own. The
    /// command gets no other groups. If an ordinary user of the host starts the guest, files of that user belong to
    /// USER in the guest.
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<String>,

    /// The command's working directory in the guest, which is made if it is missing [default: the first share]
    #[arg(long, value_name = "PATH", value_parser = parse_workdir)]
    workdir: Option<PathBuf>,

    /// Write what guests have changed in overlays into the directories if the command ends with status 0
    ///
    /// As `transom commit` does for all of them; what the host has changed too is refused and stays in the overlay.
    #[arg(long)]
    commit_on_success: bool,

    /// At the end, write a JSON object with status, times, resources and changed files to FILE, or to standard output
    ///
    /// `status` is the exit status and `error` this program's own failure, or null. `seconds` has the duration of each
    /// phase. `resources` has the processor time and the greatest memory of the processes on the host. `overlays` has
    /// the changes of each, as `transom diff --json` prints them.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Stop the guest after this many seconds, with exit status 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,

    #[command(flatten)]
    keeping: keep::Keeping,

    /// Give the command a terminal; `auto` does if standard input and output are terminals
    #[arg(long, value_enum, default_value_t = Tty::Auto)]
    tty: Tty,

    /// Replay changes that are made on the host in the guest's writable shares, at once and with inotify events
    ///
    /// Needs shares in which changes can be observed, which takes no privileges, and `transom-agent` in this program's
    /// directory. Where one is missing, `auto` goes on without, and -v says why; `always`, which --events alone means,
    /// fails. With `auto`, the command may start a moment before changes are replayed.
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "auto", default_missing_value = "always", overrides_with = "no_events")]
    events: events::When,

    /// The same as --events=never: the guest sees changes that are made on the host when its caches expire
    #[arg(long, overrides_with = "events")]
    no_events: bool,

    #[command(flatten)]
    network: network::NetworkArgs,

    #[command(flatten)]
    disk: disk::DiskArgs,

    /// Print where each share is mounted, and the duration of each phase, to standard error
    #[arg(long, short = 'v', visible_alias = "verbose")]
    timing: bool,

    /// Boot the machine, instead of resuming a snapshot of one that has booted
    ///
    /// The first guest of a kind (kernel, QEMU, memory, CPUs) boots and leaves a snapshot in the cache, before it has
    /// any share; later ones start from it. With KVM, --vmm uml, --console, --kernel-with-versions or a DAX window,
    /// every guest boots.
    #[arg(long)]
    cold: bool,

    /// Write the output of the guest's console to a file
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,

    /// The daemon that serves the shares, which must accept virtiofsd's options [default: transomd in this program's
    /// directory]
    #[arg(long, value_name = "PROGRAM", env = "TRANSOM_DAEMON")]
    daemon: Option<PathBuf>,

    /// Have the share's daemon join GROUP, whose daemons tell each other's guests what has changed
    ///
    /// GROUP is a name, or a directory with a '/' in its path; see transomd --help. All daemons of a group share one
    /// directory. The daemon must be transomd.
    #[arg(long, value_name = "GROUP")]
    coherence_group: Option<OsString>,

    /// Boot a kernel that reads the version table of the daemon's coherence group, so that nothing it caches is stale
    ///
    /// Names, attributes, data and listings are cached without time-outs, and a change by another guest of the group is
    /// seen at the next access. Needs --coherence-group, and with --vmm qemu QEMU 11.1 or newer. The kernel is built
    /// from Debian's source with a patch; this happens once and takes some minutes. One that --kernel names must have
    /// the patch.
    #[arg(long)]
    kernel_with_versions: bool,

    /// An argument to pass on to every share's daemon; may be repeated
    #[arg(long = "daemon-arg", value_name = "ARG", allow_hyphen_values = true)]
    daemon_args: Vec<OsString>,

    /// Fetch QEMU as a package into the cache if it is not installed
    #[arg(long)]
    fetch: bool,

    /// The QEMU executable [default: qemu-system-x86_64 in PATH, or the one in the cache]
    #[arg(long, value_name = "PROGRAM", env = "TRANSOM_QEMU")]
    qemu: Option<PathBuf>,

    /// A static busybox for the minimal root [default: the installed one, or Debian's from the cache]
    #[arg(long, value_name = "FILE", env = "TRANSOM_BUSYBOX")]
    busybox: Option<PathBuf>,

    /// The command and its arguments; options of this program come before it
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// A run that can begin.
struct Prepared {
    spec: GuestSpec,
    vmm: Box<dyn Vmm>,
    overlays: Overlays,
    /// The guest's root, which must stay while the guest runs.
    image: Option<Image>,
}

/// Returns the host's directory that is the guest's root, if it has one.
fn host_root(root: &Root) -> Option<&Path> {
    match root {
        Root::Host(share) => Some(&share.host),
        Root::Minimal => None,
    }
}

fn host_share(root: &mut Root) -> Option<&mut Share> {
    match root {
        Root::Host(share) => Some(share),
        Root::Minimal => None,
    }
}

/// Returns whether a root is that of the host.
fn is_host(root: &Path) -> bool {
    root == Path::new("/")
}

impl Run {
    /// Runs the command; returns its exit status, or one of this program's own.
    pub(crate) fn execute(self) -> ExitCode {
        if self.keeping.is_wanted() {
            return self.keep();
        }
        let finish = Finish::new(&self);
        match self.prepare() {
            Err(error) => finish.report(Err(error), Overlays::default(), &[]),
            Ok(Prepared { spec, vmm, overlays, image }) => {
                if finish.shows_timings() {
                    report::shares(&spec);
                }
                let _image = image.map(Image::without_signals);
                let result = transom_vm::run(&spec, vmm.as_ref());
                let refused = spec.network.refused();
                // It holds the locks of the overlays.
                drop(spec);
                finish.report(result, overlays, &refused)
            }
        }
    }

    fn prepare(self) -> Result<Prepared> {
        let cache = Cache::locate()?;
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        let agent = env::current_exe().map_err(Error::io("cannot find this program's path"))?;
        let daemon = self.daemon.clone().unwrap_or_else(|| agent.with_file_name("transomd"));
        check_programs(&agent, &daemon)?;
        let (mut root, image) = self.root(&cache, &report)?;
        if matches!(&root, Root::Host(share) if share.dax.is_some()) {
            return Err(Error::Usage(
                "--root takes no `dax`: the root is read-only for the guest, and a read-only share has no DAX window"
                    .into(),
            ));
        }
        let mut shares = self.shares(&root)?;
        mount_points::order(&shares)?;
        self.apply_version_table(&mut root, &mut shares)?;
        hidden::apply(&self.hide, &self.show, &mut root, &mut shares)?;
        self.disk.apply(&mut shares)?;
        self.disk.limit_rate(shares.iter_mut().chain(host_share(&mut root)))?;
        let events = self.events(&agent, &shares)?;
        let defaults = image::Defaults::of(image.as_ref().map(|image| &image.unpacked), &root, self.user.as_deref())?;
        let user = self.user.as_deref().map(|words| parse_user(words, host_root(&root))).transpose()?;
        let asked = self.env.iter().map(|pair| parse_variable(pair)).collect::<Result<Vec<_>>>()?;
        let env = defaults.env.into_iter().chain(asked).collect();
        let directory = self.workdir.clone().or(defaults.directory.filter(|_| shares.is_empty()));
        let overlays = Overlays::open(&mut shares, &daemon, |number| self.overlay(number))?;
        let busybox = match (&root, &self.busybox) {
            (Root::Host(_), _) => None,
            (Root::Minimal, Some(path)) => Some(path.clone()),
            (Root::Minimal, None) => Some(tools.busybox()?),
        };
        let (kernel, vmm) = self.kernel_and_vmm(&tools, &shares)?;
        let spec = GuestSpec {
            kernel,
            daemon,
            events,
            agent,
            busybox,
            root,
            shares,
            env,
            memory_mib: self.memory,
            cpus: self.cpus,
            scratch: self.scratch,
            stdio: self.stdio(),
            network: self.network.network(matches!(self.vmm, VmmName::Qemu))?,
            timeout: self.timeout,
            console: self.console.clone(),
            snapshots: (!self.cold).then(|| cache.dir().join("machines")),
            directory,
            user: user.or(defaults.user),
            is_foreground: true,
            command: if self.command.is_empty() { defaults.command } else { self.command },
        };
        Ok(Prepared { spec, vmm, overlays, image })
    }

    /// Returns the guest's root, and the image that it is, if it is one.
    fn root(&self, cache: &Cache, report: &OnStderr) -> Result<(Root, Option<Image>)> {
        let Some(words) = &self.root else { return Ok((Root::Minimal, None)) };
        let parsed = ShareArg::parse(words)?;
        overlays::check_root(&parsed.host, parsed.overlay.is_some())?;
        let image = image::open(&parsed, cache, report)?;
        let share = match &image {
            Some(image) => image::root(&image.unpacked, parsed),
            None => parsed,
        };
        Ok((Root::Host(self.resolve(share, |_| "/".into())?), image))
    }

    fn shares(&self, root: &Root) -> Result<Vec<Share>> {
        let has_host_root = host_root(root).is_some_and(is_host);
        self.shares.iter().map(|words| self.share(words, |host| guest_path(host, has_host_root))).collect()
    }

    fn share(&self, words: &OsStr, guest_path: impl FnOnce(&Path) -> PathBuf) -> Result<Share> {
        let parsed = ShareArg::parse(words)?;
        if let Some(name) = &parsed.image {
            return Err(Error::Usage(format!("share {words:?}: image={name} is for --root")));
        }
        self.resolve(parsed, guest_path)
    }

    fn resolve(&self, share: ShareArg, guest_path: impl FnOnce(&Path) -> PathBuf) -> Result<Share> {
        let share = share.resolve(guest_path)?;
        Ok(Share { daemon_args: self.group_args().chain(self.daemon_args.iter().cloned()).collect(), ..share })
    }

    fn group_args(&self) -> impl Iterator<Item = OsString> {
        self.coherence_group.iter().flat_map(|group| ["--coherence-group".into(), group.clone()])
    }

    fn stdio(&self) -> Stdio {
        let is_terminal = self.tty.is_wanted();
        Stdio { stdin: Input::Inherit, stdout: Output::Inherit, stderr: Output::Inherit, is_terminal }
    }
}
