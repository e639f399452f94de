//! `transom ps`: the machines that stay.

use std::{ffi::OsString, io::Write as _, process::ExitCode};

use clap::Args;
use comfy_table::{Table, presets::NOTHING};
use indicatif::HumanDuration;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use transom_vm::keep::{SharedDirectory, State, Status, machines};

use crate::tell::tell;

/// List the machines that `transom run --keep` has started
///
/// Tells also which machines have ended by themselves since the last time, and why. Their names are free then.
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Print a JSON array, with an object for each machine
    #[arg(long)]
    json: bool,
}

impl Ps {
    pub(crate) fn execute(self) -> ExitCode {
        let machines = match machines() {
            Ok(machines) => machines,
            Err(error) => {
                tell(error);
                return ExitCode::FAILURE;
            }
        };
        for (_, state) in &machines {
            if let State::Ended(error) = state {
                tell(error);
            }
        }
        let text = match self.json {
            true => format!("{}\n", machines.iter().filter_map(object).collect::<Value>()),
            false => table(&machines),
        };
        match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        }
    }
}

fn object((name, state): &(String, State)) -> Option<Value> {
    match state {
        State::Ended(_) => None,
        State::Starting => Some(json!({ "name": name, "state": "starting" })),
        State::Running(status) => {
            let text = |word: &OsString| word.to_string_lossy().into_owned();
            let share = |share: &SharedDirectory| {
                json!({
                    "host": share.host.to_string_lossy(), "guest": share.guest.to_string_lossy(), "mode": share.mode,
                })
            };
            let commands = status.commands.iter().map(|command| {
                json!({ "command": command.words.iter().map(text).collect::<Vec<_>>(), "since": command.since })
            });
            Some(json!({
                "name": name,
                "state": "running",
                "since": status.since,
                "pid": status.pid,
                "vmm": status.vmm,
                "memory_mib": status.memory_mib,
                "cpus": status.cpus,
                "root": status.root.as_ref().map(|root| root.to_string_lossy()),
                "shares": status.shares.iter().map(share).collect::<Vec<_>>(),
                "commands": commands.collect::<Vec<_>>(),
            }))
        }
    }
}

fn table(machines: &[(String, State)]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["NAME", "STATE", "SINCE", "COMMANDS", "MEMORY", "VMM", "PID", "SHARES"]);
    for (name, state) in machines {
        match state {
            State::Ended(_) => {}
            State::Starting => drop(table.add_row([name, "starting"])),
            State::Running(status) => drop(table.add_row(row(name, status))),
        }
    }
    // Columns are padded on both sides.
    let lines = table.lines().map(|line| line.trim().to_owned() + "\n");
    lines.collect()
}

fn row(name: &str, status: &Status) -> Vec<String> {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let share = |share: &SharedDirectory| format!("{}:{},{}", share.host.display(), share.guest.display(), share.mode);
    vec![
        name.to_owned(),
        "running".to_owned(),
        HumanDuration(Duration::from_secs(age.as_secs().saturating_sub(status.since))).to_string(),
        status.commands.len().to_string(),
        format!("{} MiB", status.memory_mib),
        status.vmm.clone(),
        status.pid.to_string(),
        status.shares.iter().map(share).collect::<Vec<_>>().join(" "),
    ]
}
