//! `transom run --keep`: a machine that another process of this program keeps.
//!
//! The process that keeps the machine is this program with the same arguments, in a session of its own. It reports
//! through a pipe when the machine is ready, and has this process's standard error until then.

use std::{
    env,
    io::Read as _,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    thread,
};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::iterator::Signals;
use transom_vm::{
    Error, Result,
    keep::{self, Claim, Exec, ParseShare, READY},
};

use super::{Finish, Overlays, Prepared, Run, VmmName, image::Image, late::LateShares, report, signals::ENDING};
use crate::{machines::run_in, tell::tell, usage::RUN_FAILED};

/// Environment variable that marks the process that keeps the machine.
const KEEPER_VARIABLE: &str = "TRANSOM_RUN_KEEPER";

/// Whether the machine stays.
#[derive(Debug, Args)]
pub(super) struct Keeping {
    /// Keep the machine after COMMAND has ended, under this name, until `transom stop NAME`
    ///
    /// `transom exec NAME -- COMMAND` runs further commands in it, `transom ps` lists such machines, and `transom cp`
    /// copies files. Without COMMAND, the machine waits for those. A process in the background keeps the machine; if it
    /// dies, the machine and its daemons do.
    #[arg(long, value_name = "NAME")]
    keep: Option<String>,
}

impl Keeping {
    pub(super) fn is_wanted(&self) -> bool {
        self.keep.is_some()
    }
}

impl Run {
    /// Starts a machine that stays, and runs the command in it, if there is one.
    pub(super) fn keep(self) -> ExitCode {
        let name = self.keeping.keep.clone().unwrap_or_default();
        let is_keeper = env::var_os(KEEPER_VARIABLE).is_some();
        let kept = match is_keeper {
            true => Claim::take(&name).map(|claim| {
                claim.ended_before().into_iter().for_each(tell);
                self.be_keeper(&Arc::new(claim))
            }),
            false => self.start_keeper(&name),
        };
        kept.unwrap_or_else(|error| {
            tell(error);
            ExitCode::from(RUN_FAILED)
        })
    }

    fn start_keeper(self, name: &str) -> Result<ExitCode> {
        self.check_kept()?;
        let mut arguments = env::args_os();
        let program = arguments.next().unwrap_or_default();
        let mut command = Command::new("/proc/self/exe");
        command.arg0(program).args(arguments).env(KEEPER_VARIABLE, "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Signals that the terminal sends to this process's group must not reach the keeper.
        command.process_group(0);
        // Until the machine is there, those that reach this process are for both.
        let mut signals = Signals::new(ENDING).map_err(Error::io("cannot take over the signals"))?;
        let mut keeper = command.spawn().map_err(Error::io("cannot start the process that keeps the machine"))?;
        let (handle, keeper_id) = (signals.handle(), Pid::from_child(&keeper));
        let forwarding = thread::spawn(move || {
            for number in signals.forever() {
                if let Some(signal) = Signal::from_named_raw(number) {
                    let _ = kill_process(keeper_id, signal);
                }
            }
        });
        let mut report = Vec::new();
        let read = keeper.stdout.as_mut().map_or(Ok(0), |pipe| pipe.read_to_end(&mut report));
        handle.close();
        let _ = forwarding.join();
        read.map_err(Error::io("cannot read the report of the keeper"))?;
        if report != READY {
            // It has said why.
            let status = keeper.wait().map_err(Error::io("cannot wait for the keeper"))?;
            let code = status.code().or_else(|| Some(128 + status.signal()?));
            return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(RUN_FAILED).into());
        }
        if self.command.is_empty() {
            eprintln!("transom: the machine {name} is running: transom exec {name} -- COMMAND, transom stop {name}");
            return Ok(ExitCode::SUCCESS);
        }
        Ok(run_in(name, Exec::new(self.command), self.tty, None, None))
    }

    /// Refuses options that have no meaning for a machine that stays.
    fn check_kept(&self) -> Result<()> {
        if matches!(self.vmm, VmmName::Uml) {
            return Err(Error::Usage(
                "--keep needs --vmm qemu: the serial lines of User Mode Linux stall with several commands".into(),
            ));
        }
        let refused = [
            (self.timeout.is_some(), "--timeout", "give it to `transom exec`, for one command"),
            (
                self.json.is_some(),
                "--json",
                "`transom exec --json` has the status of a command, `transom ps --json` of a machine",
            ),
            (self.commit_on_success, "--commit-on-success", "`transom commit` the directory after `transom stop`"),
        ];
        match refused.iter().find(|(is_given, ..)| *is_given) {
            None => Ok(()),
            Some((_, option, instead)) => {
                Err(Error::Usage(format!("--keep and {option} exclude each other: {instead}")))
            }
        }
    }

    fn be_keeper(self, claim: &Arc<Claim>) -> ExitCode {
        // Fails if this process leads a session already.
        let _ = rustix::process::setsid();
        let finish = Finish::new(&self);
        let late: Arc<dyn ParseShare> = Arc::new(LateShares::of(&self));
        let status = match self.prepare() {
            Err(error) => finish.report(Err(error), Overlays::default(), &[]),
            Ok(Prepared { spec, vmm, overlays, image }) => {
                if finish.shows_timings() {
                    report::shares(&spec);
                }
                let _image = image.map(Image::without_signals);
                let result = keep::keep(&spec, vmm.as_ref(), claim, Arc::clone(&late));
                let refused = spec.network.refused();
                // It holds the locks of the overlays.
                drop(spec);
                finish.report(result, overlays, &refused)
            }
        };
        claim.end();
        status
    }
}
