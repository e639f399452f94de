//! Runs Debian's fio in Linux guests under QEMU: on a share with and without DAX, other daemons, and QEMU's virtio-9p.
//!
//! The guest's root is the host's, which provides fio. In each round, each side boots once and runs the whole
//! [`matrix`] in a single fio process, because fio starts slowly in an emulated guest. Its report returns on standard
//! output.

mod matrix;
mod output;
mod side;

use std::{env, fs, io::Write, path::Path, time::Duration};

use anyhow::{Context, anyhow, ensure};
use transom_vm::{Accelerator, GuestSpec, Kernel, Qemu, Root, Share, Stdio, tools::Program};

use crate::{progress, report::Sample};
pub use side::{Side, Way};

/// What to measure.
pub struct Plan {
    /// The first one is compared with each of the others.
    pub sides: Vec<Side>,
    /// Number of rounds over all sides.
    pub rounds: u32,
    /// Size of each file in bytes; each of fio's jobs has one file.
    pub file_len: u64,
    /// Seconds of each fio run.
    pub seconds: f64,
    /// Warm-up of each run in seconds, not measured: files are mapped, caches fill.
    pub warm_up: f64,
    /// The kernel to boot.
    pub kernel: Kernel,
    /// Executes the guest: KVM or emulation.
    pub accelerator: Accelerator,
    /// Memory of the guest, in MiB.
    pub memory_mib: u32,
    /// Virtual processors of the guest.
    pub cpus: u32,
}

/// The guest's mount point of the share.
const MOUNT_POINT: &str = "/mnt";
/// fio's job file, in the share.
const JOB_FILE: &str = "fio.job";
/// Upper bound on the time for a boot, mounts and the start of each fio, emulated on a busy machine.
const OVERHEAD: Duration = Duration::from_secs(600);

/// Measures `plan` with QEMU, sharing a fresh directory below `parent`.
pub fn measure(plan: &Plan, qemu: &Program, cache: &Path, parent: &Path) -> anyhow::Result<Vec<Sample>> {
    let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
    make_files(shared.path(), plan.file_len)?;
    let jobs = matrix::all();
    let job_file = matrix::job_file(&jobs, MOUNT_POINT, plan.file_len, plan.seconds, plan.warm_up);
    fs::write(shared.path().join(JOB_FILE), job_file)?;
    let bar = progress::bar(plan.sides.len() as u64 * u64::from(plan.rounds));
    let scenario = format!("QEMU ({}), {} vCPU, {} MiB files", plan.accelerator.name(), plan.cpus, plan.file_len >> 20);
    let mut samples = Vec::new();
    for repetition in 0..plan.rounds {
        for side in &plan.sides {
            bar.set_message(side.name.clone());
            let text = in_guest(plan, side, qemu, cache, shared.path())?;
            let mut answers = output::parse(&text).with_context(|| format!("fio over {}", side.name))?;
            for job in &jobs {
                let answer = answers.remove(&job.name).unwrap_or_else(|| Err(anyhow!("fio reported no result")));
                samples.push(Sample {
                    scenario: scenario.clone(),
                    workload: job.name.clone(),
                    daemon: side.name.clone(),
                    repetition,
                    refusal: answer.as_ref().err().map(|error| format!("{error:#}")),
                    measure: answer.ok(),
                });
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

/// Creates files with random bytes, which cannot be compressed or taken for holes.
fn make_files(dir: &Path, len: u64) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut chunk = vec![0; 1 << 20];
    for name in matrix::file_names() {
        let mut file = fs::File::create(dir.join(name))?;
        let mut left = len;
        while left > 0 {
            let part = left.min(chunk.len() as u64) as usize;
            random.fill(&mut chunk[..part]);
            file.write_all(&chunk[..part])?;
            left -= part as u64;
        }
    }
    Ok(())
}

/// Runs all jobs in one guest and returns fio's output.
fn in_guest(plan: &Plan, side: &Side, qemu: &Program, cache: &Path, shared: &Path) -> anyhow::Result<String> {
    let vmm = side.vmm(Qemu::new(qemu.clone(), plan.accelerator, cache), shared);
    let root = Share { host: "/".into(), guest: "/".into(), is_read_only: true, ..Share::default() };
    let spec = GuestSpec {
        kernel: plan.kernel.clone(),
        agent: env::current_exe()?,
        events: None,
        daemon: side.daemon.program()?.to_owned(),
        busybox: None,
        root: Root::Host(root),
        shares: side.shares(shared, MOUNT_POINT),
        command: ["sh", "-c"].into_iter().map(Into::into).chain([script(side).into()]).collect(),
        env: Vec::new(),
        memory_mib: plan.memory_mib,
        cpus: plan.cpus,
        scratch: None,
        stdio: Stdio::default(),
        timeout: Some(
            OVERHEAD + Duration::from_secs_f64((plan.seconds + plan.warm_up) * matrix::all().len() as f64 * 2.0),
        ),
        console: None,
        snapshots: None,
        directory: None,
        user: None,
        network: transom_vm::network::Network::Off,
        is_foreground: false,
    };
    let outcome = transom_vm::run(&spec, &vmm).with_context(|| format!("a guest with {}", side.name))?;
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.exit_code == 0, "fio over {} ended with {}: {stderr}", side.name, outcome.exit_code);
    Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
}

/// Returns the guest's script. It succeeds even if a job fails, because fio reports that.
fn script(side: &Side) -> String {
    let mount = side.mount_script(MOUNT_POINT);
    format!(
        "set -e\ncommand -v fio >/dev/null || {{ echo 'there is no fio: install the package' >&2; exit 1; }}\n{mount}\
         fio --output-format=json {MOUNT_POINT}/{JOB_FILE} || true\n"
    )
}
