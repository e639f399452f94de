//! Machines that start from a snapshot of a booted guest instead of booting.
//!
//! Such a machine boots without shares, and its agent waits for its task. Then the machine is stopped, QEMU writes its
//! own state to a pipe, and the memory, which is a file, is copied: that is the snapshot, which the [`Store`] keeps.
//! The machine goes on, as does each one that starts from the snapshot later. It gets its shares by hot-plug, and with
//! its task the time and random bytes ([`agent`](crate::agent)), so that no two of them draw the same random numbers.
//!
//! The state does not contain the memory (QEMU's migration capability `x-ignore-shared`), and no share, so that every
//! version of QEMU that Transom supports can do it.

mod key;
mod memory;
mod plan;
mod store;

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    pipe::{PipeFlags, pipe_with},
    rand::{GetRandomFlags, getrandom},
};
use serde_json::{Value, json};

pub(crate) use self::{
    key::Key,
    plan::Plan,
    store::{Snapshot, Store},
};
use crate::{
    SharePoint,
    protocol::{Beginning, SEED_LEN, Task, ToGuest},
    qmp::{Patience, Qmp},
};

/// Shares that a machine has room for, the root among them: each needs a port, which is there from the start.
pub(crate) const SHARES_MAX: usize = 6;

/// The ports after those of shares: of a network device and of a scratch disk.
const NETWORK_PORT: usize = SHARES_MAX;
const SCRATCH_PORT: usize = NETWORK_PORT + 1;

/// The pipe for the machine's state, as QEMU knows it.
const STATE: &str = "state";
const STATE_URI: &str = "fd:state";

/// What QEMU is started with so that its machine can be saved or resumed.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The guest's memory.
    memory: File,
    /// QEMU's end of the connection for commands.
    monitor: OwnedFd,
    is_resumed: bool,
    /// The machine has its devices from the start.
    has_devices: bool,
}

/// What a machine gets beside its shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    pub(crate) has_network: bool,
    pub(crate) has_scratch: bool,
}

/// A machine without shares, whose agent waits for a task.
#[derive(Debug)]
pub(crate) struct Waiting {
    monitor: OwnedFd,
    memory: File,
    snapshot: Option<Snapshot>,
}

impl Ends {
    /// Returns what QEMU needs, and the machine that will wait. It boots if there is no snapshot.
    pub(crate) fn new(memory_len: u64, snapshot: Option<Snapshot>) -> io::Result<(Self, Waiting)> {
        let memory = memory::zeros(memory_len)?;
        let (monitor, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let ends =
            Self { memory: memory.try_clone()?, monitor: theirs, is_resumed: snapshot.is_some(), has_devices: false };
        Ok((ends, Waiting { monitor, memory, snapshot }))
    }

    /// Returns what QEMU needs for a machine that boots with its devices, and may get others later.
    pub(crate) fn with_devices(self) -> Self {
        Self { has_devices: true, ..self }
    }

    /// Returns whether the machine gets its network device later.
    pub(crate) fn is_late(&self) -> bool {
        !self.has_devices
    }

    /// Returns the value of `-object` for the memory.
    pub(crate) fn memory_object(&self, memory_mib: u32) -> String {
        let number = self.memory.as_raw_fd();
        format!("memory-backend-file,id=memory,mem-path=/proc/self/fd/{number},size={memory_mib}M,share=on")
    }

    /// Returns the arguments for the ports and the monitor.
    pub(crate) fn arguments(&self, has_scratch: bool) -> Vec<String> {
        let mut arguments = Vec::new();
        for number in 0..=NETWORK_PORT + usize::from(has_scratch) {
            let port = format!("pcie-root-port,id=port{number},chassis={},io-reserve=0", number + 1);
            arguments.extend(["-device".into(), port]);
        }
        let monitor = self.monitor.as_raw_fd();
        arguments.extend(["-chardev".into(), format!("socket,id=monitor,fd={monitor}")]);
        arguments.extend(["-mon".into(), "chardev=monitor,mode=control".into()]);
        if self.is_resumed {
            // Stopped until the shares are there.
            arguments.extend(["-S".into(), "-incoming".into(), "defer".into()]);
        }
        arguments
    }

    /// Returns whether the machine is resumed rather than booted.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Returns the descriptors that QEMU inherits.
    pub(crate) fn into_inherited(self) -> [OwnedFd; 2] {
        [self.memory.into(), self.monitor]
    }
}

/// A machine whose monitor answers.
#[derive(Debug)]
pub(crate) struct Monitored {
    qmp: Qmp,
    memory: File,
}

impl Waiting {
    /// Waits until QEMU answers. Loads the snapshot, if there is one; the machine is stopped then. Blocks.
    pub(crate) fn ready(self, patience: Patience) -> io::Result<Monitored> {
        let Self { monitor, memory, snapshot } = self;
        if let Some(snapshot) = &snapshot {
            // QEMU starts meanwhile, and does not touch the memory until the state comes.
            memory::copy(&snapshot.memory, &memory)?;
        }
        let mut qmp = Qmp::new(monitor, patience)?;
        qmp.ask(
            "migrate-set-capabilities",
            &json!({ "capabilities": [
            { "capability": "x-ignore-shared", "state": true },
        ] }),
        )?;
        if let Some(snapshot) = snapshot {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            qmp.pass(STATE, reader.as_fd())?;
            drop(reader);
            let writer = thread::spawn(move || File::from(writer).write_all(&snapshot.state));
            qmp.ask("migrate-incoming", &json!({ "uri": STATE_URI }))?;
            qmp.await_migration()?;
            writer.join().map_err(|_| io::Error::other("the thread that writes the state panicked"))??;
        }
        Ok(Monitored { qmp, memory })
    }
}

impl Monitored {
    /// Saves the machine and leaves it stopped.
    pub(crate) fn save(&mut self, store: &Store, key: &Key, sources: &[PathBuf]) -> io::Result<()> {
        self.qmp.ask("stop", &json!({}))?;
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        self.qmp.pass(STATE, writer.as_fd())?;
        // QEMU has the only other one, so that its end is the end of the state.
        drop(writer);
        let reader = thread::spawn(move || {
            let mut state = Vec::new();
            File::from(reader).read_to_end(&mut state).map(|_| state)
        });
        self.qmp.ask("migrate", &json!({ "uri": STATE_URI }))?;
        self.qmp.await_migration()?;
        let state = reader.join().map_err(|_| io::Error::other("the thread that reads the state panicked"))??;
        store.keep(key, &self.memory, &state, sources)
    }

    /// Plugs the shares and the other devices in, lets the machine go on, and sends the task to the agent.
    pub(crate) fn begin(
        &mut self,
        points: &[SharePoint],
        devices: Devices,
        task: Task,
        control: &OwnedFd,
    ) -> io::Result<()> {
        for (port, point) in points.iter().enumerate() {
            self.plug(point, port)?;
        }
        if devices.has_network {
            self.qmp.ask("netdev_add", &json!({ "type": "user", "id": "network" }))?;
            self.qmp.ask(
                "device_add",
                &json!({
                    "driver": crate::qemu::NETWORK_DEVICE, "id": "device-network", "bus": format!("port{NETWORK_PORT}"),
                    "netdev": "network", "romfile": "",
                }),
            )?;
        }
        if devices.has_scratch {
            self.qmp.ask(
                "device_add",
                &json!({
                    "driver": crate::qemu::SCRATCH_DRIVER, "id": "device-scratch", "bus": format!("port{SCRATCH_PORT}"),
                    "drive": crate::qemu::SCRATCH, "werror": "report", "rerror": "report",
                }),
            )?;
        }
        self.qmp.ask("cont", &json!({}))?;
        let mut seed = vec![0; SEED_LEN];
        getrandom(&mut seed, GetRandomFlags::empty())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let beginning = Beginning { task, now, seed };
        let mut line = serde_json::to_vec(&ToGuest::Begin(Box::new(beginning)))?;
        line.push(b'\n');
        File::from(control.try_clone()?).write_all(&line)
    }
}

impl Monitored {
    /// Plugs a share into a port.
    pub(crate) fn plug(&mut self, point: &SharePoint, port: usize) -> io::Result<()> {
        let id = connection(port);
        self.qmp.ask("chardev-add", &json!({ "id": id, "backend": socket(&point.socket)? }))?;
        self.qmp.ask(
            "device_add",
            &json!({
                "driver": crate::qemu::SHARE_DEVICE, "id": format!("device-{id}"), "bus": format!("port{port}"),
                "chardev": id, "tag": point.tag, "queue-size": crate::qemu::QUEUE_LEN,
            }),
        )?;
        Ok(())
    }

    /// Closes the connection to the daemon of a port whose device the guest has switched off, which removes it.
    pub(crate) fn forget(&mut self, port: usize) -> io::Result<()> {
        self.qmp.ask("chardev-remove", &json!({ "id": connection(port) })).map(drop)
    }
}

/// Returns QEMU's name for the connection to the daemon in a port. Those of a machine that booted with its shares have
/// other names.
fn connection(port: usize) -> String {
    format!("port{port}-fs")
}

/// Returns the number of the bus behind a port, by which the guest knows it: the firmware numbers buses in the order of
/// the ports, and there are no others but the first.
pub(crate) fn bus_of(port: usize) -> usize {
    port + 1
}

/// Describes a connection to the daemon's socket.
fn socket(path: &Path) -> io::Result<Value> {
    let path = path.to_str().ok_or_else(|| io::Error::other(format!("{path:?} is not UTF-8")))?;
    Ok(json!({ "type": "socket", "data": { "addr": { "type": "unix", "data": { "path": path } }, "server": false } }))
}
