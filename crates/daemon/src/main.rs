//! Entry point of transomd.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::process::ExitCode;
use tracing::{error, warn};
use transom_daemon::listen;
use transom_daemon::options::{self, Invocation};
use transom_daemon::serve::serve;
use transom_daemon::start::start;
use transom_daemon::{capabilities, log};

fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os()) {
        Ok(Invocation::Serve(options)) => options,
        Ok(Invocation::PrintCapabilities) => {
            println!("{}", capabilities::CAPABILITIES);
            return ExitCode::SUCCESS;
        }
        Err(usage) => usage.exit(),
    };
    // Open the socket before the log takes a descriptor, so that the number given with --fd is the caller's.
    let listening = listen::open(&options.socket.endpoint);
    log::open(options.log);
    for remark in &options.remarks {
        warn!("{remark}");
    }
    let result =
        listening.map_err(anyhow::Error::from).and_then(|listening| serve(&options, start(&options, listening)?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
