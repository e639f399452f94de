//! The `transom` command. Each subcommand has a module, which it may share with related ones.
//!
//! The same executable is the first process of the guests that `transom run` boots.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod agent;
mod demo;
#[cfg(test)]
mod documents_test;
mod fs;
mod machines;
mod mount;
mod overlay;
mod run;
mod source;
mod tell;
mod top;
mod usage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Share directories with virtual machines, and run commands in them
#[derive(Debug, Parser)]
#[command(name = "transom", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Run>),
    Exec(machines::Exec),
    Ps(machines::Ps),
    Share(machines::Share),
    Stop(machines::Stop),
    Cp(machines::Cp),
    Fs(Box<fs::Fs>),
    Overlays(overlay::Overlays),
    Diff(overlay::Diff),
    Commit(overlay::Commit),
    Discard(overlay::Discard),
    Mount(Box<mount::MountArgs>),
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoInside(demo::DemoInside),
    Top(top::Top),
    Agent(agent::Agent),
    Bench(Box<transom_bench::commands::Bench>),
}

fn main() -> ExitCode {
    transom_vm::agent::run_if_init();
    if let Some(code) = mount::run_if_mount_helper() {
        return code;
    }
    let cli: Cli = match usage::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.command {
        Command::Run(run) => run.execute(),
        Command::Exec(exec) => exec.execute(),
        Command::Ps(ps) => ps.execute(),
        Command::Share(share) => share.execute(),
        Command::Stop(stop) => stop.execute(),
        Command::Cp(cp) => cp.execute(),
        Command::Fs(fs) => fs.execute(),
        Command::Overlays(overlays) => overlays.execute(),
        Command::Diff(diff) => diff.execute(),
        Command::Commit(commit) => commit.execute(),
        Command::Discard(discard) => discard.execute(),
        Command::Mount(mount) => mount.execute(),
        Command::Demo(demo) => demo.execute(),
        Command::DemoInside(inside) => inside.execute(),
        Command::Top(top) => top.execute(),
        Command::Agent(agent) => agent.execute(),
        Command::Bench(bench) => bench.execute(),
    }
}
