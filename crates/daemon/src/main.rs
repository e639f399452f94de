//! Entry point of transomd.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::process::ExitCode;
use tracing::{error, warn};
use transom_daemon::listen;
use transom_daemon::options::{self, Endpoint, Invocation};
use transom_daemon::sandbox::SandboxError;
use transom_daemon::serve::serve;
use transom_daemon::start::start;
use transom_daemon::{capabilities, log, supervisor};

/// The exit status of `--check` if this machine refuses the sandbox or the overlay.
const UNSUPPORTED: u8 = 3;

fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os()) {
        Ok(Invocation::Serve(options)) => options,
        Ok(Invocation::PrintCapabilities) => {
            println!("{}", capabilities::CAPABILITIES);
            return ExitCode::SUCCESS;
        }
        Ok(Invocation::Upgrade(socket)) => {
            return match supervisor::command::ask(&socket) {
                Ok(status) => ExitCode::from(status),
                Err(error) => {
                    eprintln!("{error:#}");
                    ExitCode::FAILURE
                }
            };
        }
        Err(usage) => usage.exit(),
    };
    // Open the socket before the log takes a descriptor, so that the number given with --fd is the caller's.
    let opened = match &options.socket.supervised {
        Some(by) => listen::supervised(by).map(|(listening, supervision)| (listening, Some(supervision))),
        None => listen::open(&options.socket.endpoint).map(|listening| (listening, None)),
    };
    log::open(options.log);
    if options.socket.supervised.is_none() {
        for remark in &options.remarks {
            warn!("{remark}");
        }
    }
    let result = opened.map_err(anyhow::Error::from).and_then(|(listening, supervision)| {
        if options.socket.upgradable && supervision.is_none() {
            let status = supervisor::run(&options, listening, std::env::args_os().skip(1).collect())?;
            // The status of a process has 8 bits.
            return Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)));
        }
        let started = start(&options, listening, supervision)?;
        if options.socket.endpoint == Endpoint::Nowhere {
            return Ok(ExitCode::SUCCESS);
        }
        serve(&options, started).map(|()| ExitCode::SUCCESS)
    });
    match result {
        Ok(status) => status,
        Err(error) => {
            error!("{error:#}");
            let is_of_machine = error.downcast_ref::<SandboxError>().is_some_and(SandboxError::is_of_machine);
            let is_check = options.socket.endpoint == Endpoint::Nowhere;
            if is_check && is_of_machine {
                return ExitCode::from(UNSUPPORTED);
            }
            if is_of_machine && options.share.layer.is_some() {
                error!("with `transom run --share DIR,overlay=guest`, the guest's kernel mounts the overlay instead");
            }
            ExitCode::FAILURE
        }
    }
}
