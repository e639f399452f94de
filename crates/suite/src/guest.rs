//! A guest that is ready to boot: its kernel and VMM found, fetched or built; the daemon's options settled.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use transom_vm::{
    Accelerator, GuestSpec, Kernel, Qemu, Root, Share, Stdio, Vmm,
    packages::{Cache, OnStderr, Packages},
    peer,
    tools::Tools,
    uml::Uml,
};

use crate::{
    places::Places,
    scenario::{Daemon, Guest, Scenario},
};

/// The bound on one boot with its job; an emulated guest takes some minutes at the most.
const TIMEOUT: Duration = Duration::from_secs(900);

/// A kernel, what runs it, and the daemon that serves it.
pub(crate) struct Machine {
    spec: GuestSpec,
    vmm: Box<dyn Vmm>,
    daemon_args: Vec<std::ffi::OsString>,
}

/// Finds what `scenario` needs. Errors: something is not there and cannot be had.
pub(crate) fn prepare(scenario: &Scenario, places: &Places) -> anyhow::Result<Machine> {
    let cache = Cache::locate()?;
    let report = OnStderr::default();
    let tools = Tools::new(&cache, &report);
    let (kernel, vmm): (Kernel, Box<dyn Vmm>) = match scenario.guest {
        Guest::Uml => (tools.uml_kernel(None).context("a kernel of User Mode Linux")?, Box::new(Uml)),
        Guest::Qemu(series) => {
            let kernel = tools.kernel(Some(Path::new(series))).context("a kernel")?;
            let program = tools.qemu(None, true).context("QEMU")?;
            (kernel, Box::new(Qemu::new(program, Accelerator::Tcg, tools.cache())))
        }
    };
    let daemon = match scenario.daemon {
        Daemon::Transomd => places.executable("transomd")?,
        Daemon::Virtiofsd => peer::virtiofsd(&Packages::new(&cache, &report)).context("virtiofsd")?,
    };
    let (memory_mib, cpus) = match scenario.guest {
        Guest::Uml => (512, 1),
        Guest::Qemu(_) => (1024, 2),
    };
    let spec = GuestSpec {
        kernel,
        agent: std::env::current_exe().context("finding this executable")?,
        daemon,
        busybox: None,
        root: Root::Minimal,
        shares: Vec::new(),
        command: Vec::new(),
        env: Vec::new(),
        memory_mib,
        cpus,
        stdio: Stdio::default(),
        timeout: Some(TIMEOUT),
        console: None,
        is_foreground: false,
    };
    Ok(Machine { spec, vmm, daemon_args: scenario.daemon_args().into_iter().map(Into::into).collect() })
}

impl Machine {
    /// Boots with `share` at `/share` and `tools`, read-only, at `/tools`, runs `command`, and
    /// returns its standard output.
    ///
    /// Errors: the guest did not get as far as the command's end.
    pub(crate) fn run(&self, share: &Path, tools: &Path, command: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mount = |host: &Path, guest: &str, is_read_only, daemon_args| Share {
            host: host.to_owned(),
            guest: guest.into(),
            is_read_only,
            cache: None,
            dax: None,
            daemon_args,
        };
        let spec = GuestSpec {
            shares: vec![
                mount(share, "/share", false, self.daemon_args.clone()),
                mount(tools, "/tools", true, Vec::new()),
            ],
            command: command.iter().map(Into::into).collect(),
            ..self.spec.clone()
        };
        Ok(transom_vm::run(&spec, self.vmm.as_ref())?.stdout)
    }
}
