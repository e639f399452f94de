//! transomd's entry: from a command line to a daemon that serves.

use std::process::ExitCode;
use tracing::{error, warn};
use transom_daemon::listen::{self, Listening};
use transom_daemon::options::{self, Invocation, Options};
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
    // Before the log takes a descriptor, so that the number given with --fd is the caller's.
    let listening = listen::open(&options.socket.endpoint);
    log::open(options.log);
    for remark in &options.remarks {
        warn!("{remark}");
    }
    let result = listening.map_err(anyhow::Error::from).and_then(|listening| run(&options, listening));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, listening: Listening) -> anyhow::Result<()> {
    let started = start(options, listening)?;
    let served = serve(&started.listener);
    started.traces.remove();
    served
}

fn serve(listener: &std::os::unix::net::UnixListener) -> anyhow::Result<()> {
    use std::io::Read;
    let (mut front_end, _) = listener.accept()?;
    front_end.read_to_end(&mut Vec::new())?;
    Ok(())
}
