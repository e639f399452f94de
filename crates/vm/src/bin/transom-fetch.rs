//! `transom-fetch`: fetches what guests and tests need, such as kernels or a compiler, and prints the paths.
//!
//! For developers and scripts. Paths go to standard output, progress to standard error.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use transom_vm::{
    build,
    packages::{
        Cache, Closure, Freshness, OnStderr, Packages, Request,
        kernels::Series,
        toolchain::{AtLeast, Companion},
    },
    peer,
    tools::{Architecture, Tools},
};

/// Fetch kernels and packages into the cache, without root, and print their paths
#[derive(Debug, Parser)]
#[command(name = "transom-fetch", version, max_term_width = 100)]
struct Cli {
    /// The cache directory [default: target/cache in the project's checkout, else the user's cache]
    #[arg(long, global = true, value_name = "DIR", env = "TRANSOM_CACHE")]
    cache: Option<PathBuf>,

    /// Ask the mirror for a newer version even if the cache has one
    #[arg(long, global = true)]
    update: bool,

    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A Debian cloud kernel; prints the image, the directory of modules and the release
    Kernel {
        /// A series such as 6.1 or 6.12, or a major version such as 7 for its newest kernel
        #[arg(value_name = "SERIES")]
        series: Series,
    },
    /// QEMU with a device that supports DAX windows; prints its command, one argument on each line
    Qemu {
        /// For this architecture instead: aarch64 or riscv64
        #[arg(value_name = "ARCHITECTURE")]
        architecture: Option<Architecture>,
    },
    /// User Mode Linux, built from the distribution's source; prints the executable
    Uml {
        /// With the patch by which Linux reads version tables; builds the one without it too if it is missing
        #[arg(long)]
        with_versions: bool,
    },
    /// A kernel for virtual machines, built from the distribution's source with the patch by which Linux reads version
    /// tables; prints the image
    LinuxWithVersions,
    /// virtiofsd, which Transom is compared with; prints the executable
    Peer {
        /// The package of a newer release serves too: quicker to have, and for tests, not for measurements
        #[arg(long)]
        packaged: bool,
    },
    /// A Rust compiler with the sources of `core`; prints the compiler, its version and its Debian release, and with
    /// `--cargo` a fourth line
    Rust {
        /// The minimum version
        #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_RUST_VERSION"))]
        least: AtLeast,
        /// The release to use [default: the first that has one, from this machine's to unstable]
        #[arg(long, value_name = "SUITE")]
        suite: Option<String>,
        /// Fetch cargo instead of the sources, and print it
        #[arg(long)]
        cargo: bool,
    },
    /// Packages, unpacked together; prints the directory that represents /
    Package {
        /// The name of a release, or stable, testing, unstable or NAME-backports [default: this machine's]
        #[arg(long, value_name = "SUITE")]
        suite: Option<String>,
        /// Include all dependencies
        #[arg(long)]
        deps: bool,
        /// Names of packages
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(lines) => {
            for line in lines {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("transom-fetch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<Vec<String>, Box<dyn Error>> {
    let cache = cli.cache.as_ref().map_or_else(Cache::locate, |dir| Ok(Cache::at(dir)))?;
    let report = OnStderr::default();
    let packages = Packages::new(&cache, &report);
    let freshness = if cli.update { Freshness::Newest } else { Freshness::Cached };
    match &cli.what {
        What::Kernel { series } => {
            let found = packages.kernel(*series, freshness)?;
            let modules = found.kernel.modules.iter().map(|folder| folder.display().to_string());
            Ok([found.kernel.image.display().to_string()].into_iter().chain(modules).chain([found.release]).collect())
        }
        What::Qemu { architecture } => {
            let tools = Tools::new(&cache, &report);
            let program = architecture.map_or_else(|| tools.qemu_with_window(None), |of| tools.qemu_of(of))?;
            Ok(program.words().iter().map(|word| word.display().to_string()).collect())
        }
        What::Uml { with_versions } => {
            let kernel = if *with_versions { build::uml_kernel_with_versions } else { build::uml_kernel };
            Ok(vec![kernel(&packages, freshness)?.display().to_string()])
        }
        What::LinuxWithVersions => {
            Ok(vec![build::pci_kernel_with_versions(&packages, freshness)?.display().to_string()])
        }
        What::Peer { packaged } => {
            let build = if *packaged { peer::Build::Packaged } else { peer::Build::Release };
            Ok(vec![peer::virtiofsd(&packages, build)?.display().to_string()])
        }
        What::Rust { least, suite, cargo } => {
            let companion = if *cargo { Companion::Cargo } else { Companion::Sources };
            let found = packages.toolchain(least, companion, suite.as_deref(), freshness)?;
            let cargo = found.cargo.map(|cargo| cargo.display().to_string());
            Ok([found.rustc.display().to_string(), found.version, found.suite].into_iter().chain(cargo).collect())
        }
        What::Package { suite, deps, names } => {
            let suite = suite.clone().map_or_else(Packages::own_suite, Ok)?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let closure = if *deps { Closure::WithDependencies } else { Closure::Only };
            let prefix = packages.fetch(&Request { suite: &suite, packages: &names, closure, freshness })?;
            Ok(vec![prefix.root().display().to_string()])
        }
    }
}
