//! `transom run`: runs a command in a Linux guest with directories of the host.

mod events;
mod hidden;
mod report;

use std::{
    env,
    ffi::{OsStr, OsString},
    io::IsTerminal,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, ValueEnum};
use transom_vm::{
    Accelerator, Error, GuestSpec, Input, Kernel, Output, Qemu, Result, Root, Share, ShareArg, Stdio, Vmm,
    mount_points,
    packages::{Cache, OnStderr},
    tools::{Tools, check_programs},
    uml::Uml,
};

use crate::usage::RUN_FAILED;

/// Exit statuses of `timeout` and `docker run` for their own failures, as opposed to the command's.
const TIMED_OUT: u8 = 124;
const FAILED: u8 = RUN_FAILED;

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
    /// otherwise. OPTION is `ro` for a read-only share, `cache=MODE` with the mode never, metadata, auto or always,
    /// `dax=SIZE` or `dax-mode=MODE`. Write a backslash before a colon or comma within a path. The first share is the
    /// working directory. A share inside another is mounted after it; two at one path, or one at /, are refused.
    ///
    /// `dax=SIZE`, as in dax=256M, gives the share a DAX window of that size, through which the guest maps the host's
    /// page cache: it reads and writes files without requests and without a second copy, and MAP_SHARED mappings are
    /// shared with the host. `dax-mode=always` maps every file; the default, `dax-mode=inode`, maps the files that the
    /// daemon selects. Needs QEMU 11.1 or newer, which is fetched as a package into the cache if it is not installed.
    #[arg(long = "share", short = 's', value_name = "HOST[:GUEST][,OPTION]...")]
    shares: Vec<OsString>,

    /// The guest's root: a directory of the host, `/` for the host's own root
    ///
    /// It is shared read-only; what the guest writes stays in the guest's memory. /proc, /sys, /dev, /tmp and /run are
    /// the guest's own, and home directories and secret places are hidden: see --show. By
    /// default the root is a minimal one with busybox. Accepts `,cache=MODE`, as --share does.
    #[arg(long, value_name = "DIR[,cache=MODE]")]
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

    /// How the guest's instructions are run; `auto` uses KVM if it works
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    accel: Accel,

    /// The virtual machine monitor
    #[arg(long, value_enum, default_value_t = VmmName::Qemu)]
    vmm: VmmName,

    /// Set an environment variable for the command; may be repeated
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    env: Vec<OsString>,

    /// Stop the guest after this many seconds, with exit status 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,

    /// Give the command a terminal; `auto` does if standard input and output are terminals
    #[arg(long, value_enum, default_value_t = Tty::Auto)]
    tty: Tty,

    /// Replay changes that are made on the host in the guest's writable shares, at once and with inotify events
    ///
    /// Needs root on the host, a file system of each share that can be observed, and `transom-agent` in this program's
    /// directory. Where one is missing, `auto` goes on without, and -v says why; `always`, which --events alone means,
    /// fails. With `auto`, the command may start a moment before changes are replayed.
    #[arg(long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "auto", default_missing_value = "always", overrides_with = "no_events")]
    events: events::When,

    /// The same as --events=never: the guest sees changes that are made on the host when its caches expire
    #[arg(long, overrides_with = "events")]
    no_events: bool,

    /// Print where each share is mounted, and the duration of each phase, to standard error
    #[arg(long, short = 'v', visible_alias = "verbose")]
    timing: bool,

    /// Boot the machine, instead of resuming a snapshot of one that has booted
    ///
    /// The first guest of a kind (kernel, QEMU, memory, CPUs) boots and leaves a snapshot in the cache, before it has
    /// any share; later ones start from it. With KVM, --vmm uml, --console or a DAX window, every guest boots.
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

const EXAMPLES: &str = "\
Examples:
  transom run --share .
      Start a shell in a minimal guest, in the current directory.
  transom run --root / --share . -- make test
      Run a project's tests in a sandbox: every program of the host is available, and only this directory can change.
  transom run --share ~/data,ro -- sh -c 'sha256sum *' > sums
      Checksum the files of a directory; input, output and exit status are the command's.
  transom run --share /srv/models,dax=512M -- ./load
      Map large files into the guest instead of copying them; a last line reports how much was mapped.
  tar c . | transom run --share /srv/backup:/backup -- tar x -C /backup
      Mount a share at a given path.

Exit status:
  0-123    the command's own
  124      --timeout has passed
  125      this program failed: a usage error, something missing, a guest that did not boot
  126      the command cannot be run
  127      the command was not found
  128+N    signal N ended the command, or the run: 130 after Ctrl-C
A command can end with these too; then nothing is printed after `transom:` on standard error.";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Accel {
    Auto,
    Kvm,
    Tcg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum VmmName {
    /// A PC emulator; runs any kernel
    Qemu,
    /// User Mode Linux: a kernel that runs as a process and boots in a tenth of a second, without DAX
    Uml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tty {
    Auto,
    Always,
    Never,
}

impl Run {
    /// Runs the command; returns its exit status, or one of this program's own.
    pub(crate) fn execute(self) -> ExitCode {
        let shows_timings = self.timing;
        let result = self.spec_and_vmm().and_then(|(spec, vmm)| {
            if shows_timings {
                report::shares(&spec);
            }
            transom_vm::run(&spec, vmm.as_ref())
        });
        match result {
            Ok(outcome) => {
                for warning in &outcome.warnings {
                    eprintln!("transom: {warning}");
                }
                outcome.dax.iter().for_each(report::dax);
                if shows_timings {
                    outcome.notes.iter().for_each(|note| eprintln!("transom: {note}"));
                    report::timings(&outcome.timings);
                }
                ExitCode::from(u8::try_from(outcome.exit_code).unwrap_or(FAILED))
            }
            Err(error) => {
                eprintln!("transom: {error}");
                ExitCode::from(match error {
                    Error::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(FAILED),
                    Error::TimedOut(_) => TIMED_OUT,
                    _ => FAILED,
                })
            }
        }
    }

    fn spec_and_vmm(self) -> Result<(GuestSpec, Box<dyn Vmm>)> {
        let cache = Cache::locate()?;
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        let agent = env::current_exe().map_err(Error::io("cannot find this program's path"))?;
        let daemon = self.daemon.clone().unwrap_or_else(|| agent.with_file_name("transomd"));
        check_programs(&agent, &daemon)?;
        let mut root = match &self.root {
            None => Root::Minimal,
            Some(words) => Root::Host(self.share(words, |_| "/".into())?),
        };
        if matches!(&root, Root::Host(share) if share.dax.is_some()) {
            return Err(Error::Usage(
                "--root takes no `dax`: the root is read-only for the guest, and a read-only share has no DAX window"
                    .into(),
            ));
        }
        let mut shares = self.shares(&root)?;
        mount_points::order(&shares)?;
        hidden::apply(&self.hide, &self.show, &mut root, &mut shares)?;
        let busybox = match (&root, &self.busybox) {
            (Root::Host(_), _) => None,
            (Root::Minimal, Some(path)) => Some(path.clone()),
            (Root::Minimal, None) => Some(tools.busybox()?),
        };
        let wants_window = shares.iter().any(|share| share.dax.is_some());
        let (kernel, vmm) = self.kernel_and_vmm(&tools, wants_window)?;
        let spec = GuestSpec {
            kernel,
            daemon,
            events: self.events(&agent, &shares)?,
            agent,
            busybox,
            root,
            shares,
            env: self.env.iter().map(|pair| parse_variable(pair)).collect::<Result<_>>()?,
            memory_mib: self.memory,
            cpus: self.cpus,
            stdio: self.stdio(),
            timeout: self.timeout,
            console: self.console.clone(),
            snapshots: (!self.cold).then(|| cache.dir().join("machines")),
            is_foreground: true,
            command: self.command,
        };
        Ok((spec, vmm))
    }

    fn kernel_and_vmm(&self, tools: &Tools<'_>, wants_window: bool) -> Result<(Kernel, Box<dyn Vmm>)> {
        match self.vmm {
            VmmName::Qemu => {
                let program = match wants_window {
                    true => tools.qemu_with_window(self.qemu.as_deref())?,
                    false => tools.qemu(self.qemu.as_deref(), self.fetch)?,
                };
                let kernel = tools.kernel(self.kernel.as_deref())?;
                let accelerator = match self.accel {
                    Accel::Kvm => Accelerator::Kvm,
                    Accel::Tcg => Accelerator::Tcg,
                    Accel::Auto => Accelerator::best(&program, &kernel, tools.cache()),
                };
                Ok((kernel, Box::new(Qemu::new(program, accelerator, tools.cache()))))
            }
            VmmName::Uml if wants_window => Err(Error::Usage(
                "User Mode Linux has no shared-memory regions and therefore no DAX; use --vmm qemu".into(),
            )),
            VmmName::Uml => Ok((tools.uml_kernel(self.kernel.as_deref())?, Box::new(Uml))),
        }
    }

    fn shares(&self, root: &Root) -> Result<Vec<Share>> {
        let is_host_root = matches!(root, Root::Host(share) if share.host == Path::new("/"));
        let guest_path = |host: &Path| match is_host_root {
            true => host.to_owned(),
            false => Path::new("/mnt").join(host.file_name().unwrap_or(OsStr::new("root"))),
        };
        self.shares.iter().map(|words| self.share(words, guest_path)).collect()
    }

    fn share(&self, words: &OsStr, guest_path: impl FnOnce(&Path) -> PathBuf) -> Result<Share> {
        let share = ShareArg::parse(words)?.resolve(guest_path)?;
        let group = self.coherence_group.iter().flat_map(|group| ["--coherence-group".into(), group.clone()]);
        Ok(Share { daemon_args: group.chain(self.daemon_args.iter().cloned()).collect(), ..share })
    }

    fn stdio(&self) -> Stdio {
        let is_terminal = match self.tty {
            Tty::Auto => std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
            Tty::Always => true,
            Tty::Never => false,
        };
        Stdio { stdin: Input::Inherit, stdout: Output::Inherit, stderr: Output::Inherit, is_terminal }
    }
}

fn default_cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cpus).unwrap_or(1).min(4)
}

/// Parses `512`, `512M` or `2G` to a number of MiB.
fn parse_memory_mib(words: &str) -> std::result::Result<u32, String> {
    /// Debian's cloud kernel with the minimal root panics with 96 MiB, and works with 112 MiB.
    const LEAST_MIB: u64 = 128;
    const MIB: u64 = 1 << 20;
    let has_unit = words.ends_with(|last: char| last.is_ascii_alphabetic());
    let mib = transom_size::parse(&if has_unit { words.to_owned() } else { format!("{words}M") })? / MIB;
    match u32::try_from(mib) {
        Ok(_) if mib < LEAST_MIB => Err(format!("{mib} MiB is too little; a guest needs {LEAST_MIB} MiB")),
        Ok(mib) => Ok(mib),
        Err(_) => Err(format!("{words} exceeds the memory of any machine")),
    }
}

fn parse_seconds(words: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = words.parse().map_err(|_| format!("invalid number of seconds {words:?}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn parse_variable(pair: &OsStr) -> Result<(OsString, OsString)> {
    let bytes = pair.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) if at > 0 => Ok((OsStr::from_bytes(&bytes[..at]).into(), OsStr::from_bytes(&bytes[at + 1..]).into())),
        _ => Err(Error::Usage(format!("invalid variable {pair:?}: expected NAME=VALUE"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(parse_memory_mib("512"), Ok(512));
        assert_eq!(parse_memory_mib("512M"), Ok(512));
        assert_eq!(parse_memory_mib("2GiB"), Ok(2048));
        assert_eq!(parse_memory_mib("131072k"), Ok(128));
        for words in ["", "G", "1X", "1", "99999999999T"] {
            assert!(parse_memory_mib(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn variables_have_a_name() {
        assert_eq!(parse_variable(OsStr::new("A=b=c")).unwrap(), ("A".into(), "b=c".into()));
        assert!(parse_variable(OsStr::new("=x")).is_err());
        assert!(parse_variable(OsStr::new("A")).is_err());
    }
}
