//! `transom-bench`: measures virtio-fs daemons side by side.

use std::{io, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use transom_bench::{memory, report, workload};

mod commands;

#[derive(Parser)]
#[command(version, about = "Measures virtio-fs daemons side by side")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the workloads in a directory and print one JSON line for each; this is what runs inside a guest.
    Workload {
        /// The directory; what is created there is removed again.
        dir: PathBuf,
        #[command(flatten)]
        params: workload::Params,
    },
    /// Compare daemons by themselves: requests from a driver without a guest.
    RoundTrip(commands::RoundTrip),
    /// Compare daemons under a Linux guest that runs the workloads.
    Guest(commands::Guest),
    /// Compare shares with and without DAX, other daemons and 9p: fio in a Linux guest under QEMU.
    Fio(commands::Fio),
    /// Compare daemons under the guest library, by threads of this process and without a VM.
    Library(commands::Library),
    /// Compare the daemons' memory after very many inodes.
    Memory(commands::Memory),
    /// Do everything once, as small as can be.
    Smoke(commands::Smoke),
    /// Make the table of a file of results again.
    Render {
        /// The file.
        results: PathBuf,
    },
}

fn main() -> ExitCode {
    transom_vm::agent::run_if_init();
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transom-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Workload { dir, params } => Ok(workload::run(dir, params, io::stdout())?),
        Command::RoundTrip(command) => command.run(),
        Command::Guest(command) => command.run(),
        Command::Fio(command) => command.run(),
        Command::Library(command) => command.run(),
        Command::Memory(command) => command.run(),
        Command::Smoke(command) => command.run(),
        Command::Render { results } => {
            let text = std::fs::read(&results)?;
            let table = match serde_json::from_slice::<memory::MemoryReport>(&text) {
                Ok(report) => memory::markdown(&report),
                Err(_) => report::markdown(&report::Report::read(&results)?),
            };
            print!("{table}");
            Ok(())
        }
    }
}
