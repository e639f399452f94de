//! The processes of a run, daemons and VMM: how they are started, and the errors if they end too early.

mod logs;
pub(crate) mod ports;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::logs::{fault_message, panic_message, tail, text};
use crate::{
    Boot, Channels, DaxMode, Error, Events, GuestSpec, Result, Root, Share, SharePoint, Started, Supervised, Vmm,
    daemon::Daemon,
    environment,
    initramfs::Content,
    kernel, layers, mount_points,
    network::Network,
    protocol::{GuestNetwork, Mount, Replay, Setup, Task},
    qmp::{self, Patience},
    scratch,
    snapshot::{Devices, Ends, Key, Monitored, Plan, SHARES_MAX, Store},
    terminal,
};

/// The tag of the share that becomes the root.
const ROOT_TAG: &str = "root";
/// A daemon that fails, fails within this time after QEMU could not use it.
const DAEMON_ENDS: Duration = Duration::from_millis(300);

/// How a machine may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It boots.
    Booted,
    /// It is resumed from a snapshot if there is one, or boots and leaves one.
    Resumed,
}

/// How to start a machine.
#[derive(Debug)]
pub(crate) struct How {
    pub(crate) start: Start,
    pub(crate) patience: Patience,
    /// It runs commands until it is told to end.
    pub(crate) is_kept: bool,
}

/// A running machine with all its processes. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Machine {
    // Dropped first: a daemon ends by itself after its VMM.
    vmm: Supervised,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) channels: Channels,
    pub(crate) initramfs_bytes: u64,
    vmm_name: &'static str,
    vmm_log: PathBuf,
    console: PathBuf,
    is_resumed: bool,
    /// The snapshot that the machine was resumed from, or that is made of it.
    snapshot: Option<(Store, Key)>,
    /// What the machine gets once its agent waits.
    late: Option<Late>,
    /// The connection to QEMU of a machine that can get shares while it runs.
    monitored: Option<Arc<Mutex<Monitored>>>,
    /// The tags of the shares in its ports.
    ports: [Option<String>; SHARES_MAX],
    /// The daemons of shares that it has got while it ran, by number. Numbers go on after those of `daemons`.
    pub(crate) late_daemons: BTreeMap<usize, Daemon>,
    /// How many shares it has got while it ran.
    late_shares: usize,
    /// The run's private directory.
    dir: PathBuf,
}

/// The rest of a start: a snapshot is made, and then the machine gets its shares and its task.
#[derive(Debug)]
struct Late {
    monitored: Monitored,
    task: Task,
    devices: Devices,
    /// The files that the guest's memory comes from, beside those in the key.
    sources: Vec<PathBuf>,
}

impl Machine {
    /// Starts a daemon for each share, and a machine, which boots, or is resumed if `start` allows it and there is a
    /// snapshot.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotResumed`] if resuming did not work and booting may.
    pub(crate) fn start(
        spec: &GuestSpec,
        vmm: &dyn Vmm,
        dir: &Path,
        How { start, patience, is_kept }: How,
    ) -> Result<Self> {
        let shares = tagged_shares(spec);
        let start_daemon = |(tag, share): &(String, Share)| Daemon::start(spec, share, tag, dir, &vmm.daemon_args(tag));
        let daemons = shares.iter().map(start_daemon).collect::<Result<Vec<_>>>()?;

        let initramfs = dir.join("initramfs.cpio");
        let console = spec.console.clone().unwrap_or_else(|| dir.join("console.log"));
        let kernel_args: Vec<OsString> = if spec.console.is_some() { vec![] } else { vec!["quiet".into()] };
        let scratch = spec.scratch.map(scratch::create).transpose()?;
        let boot = Boot {
            dir,
            kernel: &spec.kernel.image,
            initramfs: &initramfs,
            memory_mib: spec.memory_mib,
            cpus: spec.cpus,
            shares: &[],
            has_network_device: spec.network.has_device(),
            scratch: scratch.as_ref(),
            kernel_args: &kernel_args,
            console: &console,
        };
        let modules = module_names(spec, vmm);
        if start == Start::Resumed {
            match Plan::of(spec, vmm, &modules, &kernel_args) {
                Ok(plan) => {
                    let task = task(spec, vmm, true, is_kept)?;
                    return Self::resume(spec, plan, patience, &boot, daemons, &modules, task);
                }
                Err(why) => tracing::debug!("no snapshot: {why}"),
            }
        }
        let points: Vec<SharePoint> = daemons.iter().map(|daemon| daemon.point.clone()).collect();
        let (initramfs_bytes, _) =
            write_initramfs(spec, vmm, &modules, Some(task(spec, vmm, false, is_kept)?), &initramfs)?;
        let boot = Boot { shares: &points, ..boot };
        let (started, monitored) = match vmm.resumable().filter(|_| is_kept) {
            None => (vmm.start(&boot)?, None),
            Some(qemu) => {
                let memory = Ends::new(u64::from(spec.memory_mib) << 20, None);
                let (ends, waiting) = memory.map_err(Error::io("cannot create the guest's memory"))?;
                let started = qemu.launch(&boot, Some(ends.with_devices()))?;
                // QEMU may have ended with an error, which is told later.
                (started, waiting.ready(patience).ok())
            }
        };
        let monitored = monitored.map(|monitored| Arc::new(Mutex::new(monitored)));
        Ok(Self { initramfs_bytes, monitored, ..Self::new(started, daemons, vmm.name(), &boot) })
    }

    /// Resumes a machine, or boots one whose agent will wait.
    fn resume(
        spec: &GuestSpec,
        plan: Plan<'_>,
        patience: Patience,
        boot: &Boot<'_>,
        daemons: Vec<Daemon>,
        modules: &[&str],
        task: Task,
    ) -> Result<Self> {
        let Plan { qemu, store, key } = plan;
        let memory_len = u64::from(spec.memory_mib) << 20;
        let snapshot = store.find(&key, memory_len);
        let is_resumed = snapshot.is_some();
        let (initramfs_bytes, sources) = match is_resumed {
            true => (0, Vec::new()),
            false => write_initramfs(spec, qemu, modules, None, boot.initramfs)?,
        };
        let (ends, waiting) = Ends::new(memory_len, snapshot).map_err(Error::io("cannot create the guest's memory"))?;
        let started = qemu.launch(boot, Some(ends))?;
        let mut machine = Self {
            initramfs_bytes,
            is_resumed,
            snapshot: Some((store, key)),
            ..Self::new(started, daemons, qemu.name(), boot)
        };
        let monitored = waiting.ready(patience).map_err(|error| machine.not_resumed(&error))?;
        let devices = Devices { has_network: spec.network.has_device(), has_scratch: spec.scratch.is_some() };
        machine.late = Some(Late { monitored, task, devices, sources });
        if is_resumed {
            machine.begin()?;
        }
        Ok(machine)
    }

    fn new(started: Started, daemons: Vec<Daemon>, vmm_name: &'static str, boot: &Boot<'_>) -> Self {
        let Started { process: vmm, channels, log: vmm_log } = started;
        Self {
            vmm,
            daemons,
            channels,
            initramfs_bytes: 0,
            vmm_name,
            vmm_log,
            console: boot.console.to_owned(),
            is_resumed: false,
            snapshot: None,
            late: None,
            monitored: None,
            ports: Default::default(),
            late_daemons: BTreeMap::new(),
            late_shares: 0,
            dir: boot.dir.to_owned(),
        }
    }

    /// Continues a machine whose agent waits: makes a snapshot, unless it comes from one, plugs the shares in and sends
    /// the task. Returns what went wrong with the snapshot.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotResumed`] if the machine cannot go on.
    pub(crate) fn begin(&mut self) -> Result<Option<String>> {
        let Some(Late { mut monitored, task, devices, sources }) = self.late.take() else { return Ok(None) };
        let saved = match &self.snapshot {
            Some((store, key)) if !self.is_resumed => monitored.save(store, key, &sources),
            _ => Ok(()),
        };
        let points: Vec<SharePoint> = self.daemons.iter().map(|daemon| daemon.point.clone()).collect();
        let begun = monitored.begin(&points, devices, task, &self.channels.control);
        begun.map_err(|error| match error.kind() {
            // The first machine of its kind: the next one would fail as well.
            qmp::REFUSED if !self.is_resumed => self.refuse_snapshots(&error),
            _ => self.not_resumed(&error),
        })?;
        for (port, point) in self.ports.iter_mut().zip(points) {
            *port = Some(point.tag);
        }
        self.monitored = Some(Arc::new(Mutex::new(monitored)));
        Ok(saved.err().map(|error| format!("no snapshot of the booted machine is kept: {error}")))
    }

    /// Returns whether the machine comes from a snapshot.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Returns whether the machine gets its shares and its task when its agent waits.
    pub(crate) fn is_late(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Removes the snapshot that the machine comes from, or that was made of it.
    fn forget_snapshot(&self) {
        if let Some((store, key)) = &self.snapshot {
            store.forget(key);
        }
    }

    /// Returns `error`, and forgets the snapshot that may have led to it.
    pub(crate) fn without_snapshot(&self, error: Error) -> Error {
        self.forget_snapshot();
        error
    }

    /// Returns the error for a machine that booting may help, and forgets its snapshot. If a daemon is to blame,
    /// returns its error.
    pub(crate) fn not_resumed(&mut self, why: &dyn fmt::Display) -> Error {
        let begun = Instant::now();
        while begun.elapsed() < DAEMON_ENDS {
            if let Some(error) = self.daemons.iter_mut().find_map(Daemon::failed) {
                return error;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.forget_snapshot();
        let why = why.to_string();
        let log = tail(&text(&self.vmm_log));
        let last = log.lines().last().map(|line| format!(" ({line})")).unwrap_or_default();
        Error::NotResumed { why: format!("{}{last}", why.lines().next().unwrap_or_default()) }
    }

    /// As [`not_resumed`](Self::not_resumed), for a machine whose kind cannot be resumed, such as one whose kernel does
    /// not know hot-plug: others of its kind are booted from now on.
    pub(crate) fn refuse_snapshots(&mut self, why: &dyn fmt::Display) -> Error {
        let error = self.not_resumed(why);
        if let (Error::NotResumed { why }, Some((store, key))) = (&error, &self.snapshot) {
            store.refuse(key, why);
        }
        error
    }

    /// Returns the daemon of the share with this index. The daemon of the root, if there is one, precedes all others.
    pub(crate) fn daemon_of(&self, share: usize) -> Option<&Daemon> {
        let tag = share_tag(share);
        self.daemons.iter().find(|daemon| daemon.point.tag == tag)
    }

    /// Returns whether the VMM ends within `timeout`.
    pub(crate) fn vmm_ends(&mut self, blocking: Duration) -> bool {
        let pidfd = self.vmm.pidfd();
        let blocking = Timespec { tv_sec: blocking.as_secs() as i64, tv_nsec: i64::from(blocking.subsec_nanos()) };
        let _ = poll(&mut [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)], Some(&blocking));
        self.vmm.ended().is_some()
    }

    /// Returns the reason why the machine ended before the command did.
    pub(crate) fn ended_early(&mut self) -> Error {
        if let Some(console) = panic_message(&text(&self.console)) {
            return Error::Panicked { console };
        }
        let console = self.console_tail();
        let log = tail(&text(&self.vmm_log));
        // A VMM ends when its daemon does; a daemon ends successfully when its VMM does.
        if let Some(daemon) = self.daemons.iter_mut().chain(self.late_daemons.values_mut()).find_map(Daemon::failed) {
            return daemon;
        }
        // The VMM reports errors such as an invalid command line itself.
        if self.vmm_ends(Duration::from_secs(1)) && (console.is_empty() || !log.is_empty()) {
            let status = self.vmm.ended().map_or_else(String::new, |status| status.to_string());
            return Error::Died { what: self.vmm_name.into(), status, output: format!("{console}{log}") };
        }
        Error::GuestEnded { console }
    }

    /// Returns what the guest's kernel has said of a fault, or of a process that it has ended for want of memory.
    pub(crate) fn fault(&self) -> Option<String> {
        fault_message(&text(&self.console))
    }

    /// Returns the end of the guest's console output.
    pub(crate) fn console_tail(&self) -> String {
        tail(&text(&self.console))
    }
}

/// Returns every share with its tag, the root's first if there is one.
fn tagged_shares(spec: &GuestSpec) -> Vec<(String, Share)> {
    let mut shares = Vec::new();
    if let Root::Host(share) = &spec.root {
        let mut share = Share { is_read_only: true, ..share.clone() };
        // An overlay rejects a lower layer with submounts.
        share.daemon_args.push(layers::NO_SUBMOUNTS.into());
        shares.push((ROOT_TAG.to_owned(), share));
    }
    shares.extend(spec.shares.iter().enumerate().flat_map(|(number, share)| {
        let tag = share_tag(number);
        if let Some([lower, layer]) = layers::split(share) {
            let layer = (layers::tag(&tag), layer);
            return vec![(tag, lower), layer];
        }
        let mut share = share.clone();
        if let Some(events) = spec.events.as_ref().filter(|_| !share.is_read_only && share.layer.is_none()) {
            let when = if events.are_required { "--events=always" } else { "--events=auto" };
            // What the caller passes on comes later and wins.
            share.daemon_args.insert(0, when.into());
        }
        vec![(tag, share)]
    }));
    shares
}

fn share_tag(number: usize) -> String {
    format!("share{number}")
}

/// Returns the modules that the guest needs, without those that they depend on.
fn module_names(spec: &GuestSpec, vmm: &dyn Vmm) -> Vec<&'static str> {
    let mut names = vmm.modules().to_vec();
    names.push("virtiofs");
    if spec.network.has_device() {
        names.push("virtio_net");
    }
    let has_layered = spec.shares.iter().any(layers::are_mounted_by_guest);
    if matches!(spec.root, Root::Host(_)) || spec.scratch.is_some() || has_layered {
        names.push("overlay");
    }
    if spec.scratch.is_some() {
        names.extend(["virtio_blk", "ext4"]);
    }
    names
}

/// Returns its size in bytes, and the files of its modules.
fn write_initramfs(
    spec: &GuestSpec,
    vmm: &dyn Vmm,
    modules: &[&str],
    task: Option<Task>,
    path: &Path,
) -> Result<(u64, Vec<PathBuf>)> {
    let has_host_root = matches!(spec.root, Root::Host(_));
    let modules = kernel::needed(&spec.kernel, modules)?;
    let busybox = spec.busybox.as_deref().filter(|_| !has_host_root);
    let events = spec.events.as_ref().map(|events| &*events.program);
    let content = Content { agent: &spec.agent, events, modules: &modules, busybox };
    let setup = Setup { modules: content.module_paths(), channels: vmm.guest_channels(), task };
    let len = content.write(path, &setup)?;
    Ok((len, modules.iter().map(|module| module.path.clone()).collect()))
}

fn task(spec: &GuestSpec, vmm: &dyn Vmm, has_late_shares: bool, is_kept: bool) -> Result<Task> {
    let mount = |number: usize| {
        let share = &spec.shares[number];
        Mount {
            tag: share_tag(number),
            layer_tag: layers::are_mounted_by_guest(share).then(|| layers::tag(&share_tag(number))),
            path: share.guest.clone().into(),
            is_read_only: share.is_read_only,
            options: match share.dax.map(|dax| dax.mode) {
                None => String::new(),
                Some(DaxMode::Inode) => "dax=inode".into(),
                Some(DaxMode::Always) => "dax=always".into(),
            },
        }
    };
    let env = environment::of(spec);
    let shell = || env.iter().find(|(name, _)| name == "SHELL").map_or_else(|| "/bin/sh".into(), |pair| pair.1.clone());
    Ok(Task {
        has_late_shares,
        root_tag: matches!(spec.root, Root::Host(_)).then(|| ROOT_TAG.to_owned()),
        scratch: spec.scratch.map(|_| vmm.scratch_device().to_owned()),
        mounts: mount_points::order(&spec.shares)?.into_iter().map(mount).collect(),
        events: match &spec.events {
            None => Replay::Never,
            Some(Events { are_required: false, .. }) => Replay::Auto,
            Some(Events { are_required: true, .. }) => Replay::Always,
        },
        network: match &spec.network {
            Network::Off => GuestNetwork::Off,
            Network::Allowed(policy) => GuestNetwork::Allowed(policy.hosts().to_vec()),
            Network::Whole => GuestNetwork::Whole,
        },
        directory: match (&spec.directory, spec.shares.first()) {
            (Some(directory), _) => directory.clone().into(),
            (None, Some(share)) => share.guest.clone().into(),
            (None, None) => "/".into(),
        },
        user: spec.user.map(|user| (user.uid, user.gid)),
        command: if spec.command.is_empty() || is_kept { vec![shell()] } else { spec.command.clone() },
        is_kept,
        terminal: spec.stdio.is_terminal.then(terminal::size),
        env,
    })
}
