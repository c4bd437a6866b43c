//! The images: they are built, what they contain, and whether they run as their README says.
//!
//! They are built by Buildah from the programs under test and started by crun. Both are real, so the user, the read-only root
//! file system and the absence of capabilities are enforced by the kernel. What these tools do not show here:
//!
//! - The stage `build` is not run, and the default of `BASE` is not used, because both are in registries. The base is made of
//!   Debian's packages: the C library, libgcc and folders. So the content of the lists of dependencies, which is read from
//!   programs that `cargo auditable` compiled, is that of a stand-in, and the size is that of stripped programs of this
//!   profile on this base.
//! - No engine repeats the health check: neither its interval nor what follows from its failures is seen. The test runs its
//!   command in the container.
//! - No engine makes a volume: the test gives it the owner of the folder in the image, as engines do.
//! - There is no port to publish. The worker listens where its image says, in a network of its own, of which the health check
//!   is in; the web process must be reached by the test, so it listens on an address of this machine.
//! - Where root may not make namespaces, as in some containers, the images are built and not started.
//! - Crun gets neither a filter of system calls nor limits of memory and processors: these are given by an engine.
//!
//! `buildah run --isolation=chroot`, which needs no runtime, would show less: it has no option for a read-only root file
//! system, shares the processes of the machine, keeps a bounding set of capabilities, and when it is asked to end, it kills the
//! program without a SIGTERM.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use postonce_tests::container::{Container, Start};
use postonce_tests::deployment::{members, number};
use postonce_tests::images::{Image, Images, PROGRAMS, REVISION, VERSION, dependencies, list_name};
use postonce_tests::prelude::*;
use serde_json::json;

/// Largest size of an image in a registry.
const COMPRESSED_BYTES_MAX: u64 = 60_000_000;
/// The user and the group of the programs.
const USER: &str = "65532";
const VOLUME: &str = "/var/lib/postonce";
const KEY: &str = "bootstrap-key-of-the-image";
const KEY_FILE: &str = "/run/secrets/bootstrap-key";

#[tokio::test]
async fn the_images_are_small_and_run_without_root_on_a_read_only_file_system() {
    let images = Images::shared();
    let [web, worker] = [Binary::Web, Binary::Worker].map(|program| images.of(program));
    has_settings(web, Binary::Web, "8080/tcp");
    has_settings(worker, Binary::Worker, "8082/tcp");
    for image in [web, worker] {
        has_content(image);
    }
    // Both consist of the same layers.
    let size = images.compressed_bytes(web);
    assert!(size <= COMPRESSED_BYTES_MAX, "{size} bytes");

    if !Container::can_start() {
        println!("the images are built and not started: this machine allows no namespaces");
        return;
    }
    the_worker_is_healthy(worker).await;
    the_service_posts(web).await;
}

/// Checks the settings of an image, with which its containers are started.
fn has_settings(image: &Image, binary: Binary, port: &str) {
    let (config, program) = (image.config(), format!("/usr/local/bin/{}", binary.name()));
    // In the other format there would be no health check.
    assert_eq!(image.media_type(), "application/vnd.docker.distribution.manifest.v2+json");
    assert_eq!(config["User"], format!("{USER}:{USER}"));
    assert_eq!(config["Entrypoint"], json!([program]));
    assert_eq!(config["Healthcheck"]["Test"], json!(["CMD", program, "health"]));
    for setting in ["Interval", "Timeout", "StartPeriod", "Retries"] {
        assert!(number(config, &format!("/Healthcheck/{setting}")) > 0, "{setting}");
    }
    assert_eq!(config["ExposedPorts"], json!({port: {}}));
    assert_eq!((&config["Volumes"], &config["WorkingDir"]), (&json!({VOLUME: {}}), &json!(VOLUME)));
    let labels: BTreeMap<_, _> = members(&config["Labels"]).collect();
    let label =
        |name: &str| labels[&*format!("org.opencontainers.image.{name}")].as_str().unwrap_or_default();
    assert_eq!((label("version"), label("revision")), (VERSION, REVISION));
    assert_eq!(label("licenses"), "MIT OR Apache-2.0");
    assert!(!label("title").is_empty() && !label("description").is_empty(), "{labels:?}");
}

/// Checks the files that were added to the base.
fn has_content(image: &Image) {
    for program in PROGRAMS {
        assert_eq!(image.owner(&format!("/usr/local/bin/{}", program.name())), "0:0 755");
        assert_eq!(image.read(&format!("/usr/share/sbom/{}", list_name(program))), dependencies(program));
    }
    assert!(image.owner(VOLUME).starts_with(&format!("{USER}:{USER} ")), "{}", image.owner(VOLUME));
}

/// Starts the worker with nothing but the settings of its image.
async fn the_worker_is_healthy(image: &Image) {
    let mut worker = Container::start("worker", image, &Start::default());
    worker.until_healthy();
    is_confined(&worker, &[]);
    drains(&mut worker).await;
}

/// Starts the service as the README does, with the key in a file, and makes a first deposit.
async fn the_service_posts(image: &Image) {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("bootstrap-key");
    fs::write(&key, KEY).expect("a file");
    fs::set_permissions(&key, Permissions::from_mode(0o444)).expect("a mode");
    // Other test processes of this machine, and other tests of this one, use other addresses.
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{low}.200", high.saturating_add(1));
    let (bind, for_workers) = (format!("{address}:8080"), format!("{address}:8082"));
    let variables = [
        ("POSTONCE_BIND", &*bind),
        ("POSTONCE_WORKER_BIND", &*for_workers),
        ("POSTONCE_BOOTSTRAP_KEY_FILE", KEY_FILE),
    ];
    let start = Start {
        on_network_of_machine: true,
        variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        files: [(KEY_FILE.to_owned(), key)].into(),
    };
    let mut service = Container::start("web", image, &start);
    service.until_healthy();
    is_confined(&service, &[KEY_FILE]);

    let client = Client::new(&format!("http://{bind}"), KEY);
    let account = fresh_account();
    client.open(account).await;
    drop(client.post(account, fresh_id(), &Submission::deposit("125.50")).await);
    assert_eq!(client.balance(account).await, "125.50");
    let gate = service.execute(&["postonce-web", "gate", "show"]);
    assert!(gate.as_ref().is_ok_and(|gate| gate.contains("released")), "{gate:?}");
    drains(&mut service).await;
}

/// Checks that the kernel lets the program do nothing but write to its volume.
fn is_confined(container: &Container, files: &[&str]) {
    let status = container.about_program("status");
    let values = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let line = line.unwrap_or_else(|| panic!("no {name} in {status}"));
        line.split_whitespace().collect::<BTreeSet<_>>()
    };
    let is_only = |name: &str, value: &str| assert_eq!(values(name), BTreeSet::from([value]), "{name}");
    is_only("Uid", USER);
    is_only("Gid", USER);
    for capabilities in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        is_only(capabilities, "0000000000000000");
    }
    is_only("NoNewPrivs", "1");

    let mounts = container.about_program("mountinfo");
    let (mut writable, mut others) = (BTreeSet::new(), BTreeSet::new());
    for mount in mounts.lines() {
        let fields: Vec<&str> = mount.split(' ').collect();
        let [_, _, _, _, path, options, ..] = fields.as_slice() else { panic!("unknown: {mount}") };
        let is_writable = options.split(',').any(|option| option == "rw");
        let mounts = if is_writable { &mut writable } else { &mut others };
        mounts.insert(*path);
    }
    // Of /dev and /proc, only root can write what matters.
    assert_eq!(writable, BTreeSet::from(["/dev", "/proc", VOLUME]));
    assert_eq!(others, files.iter().copied().chain(["/"]).collect::<BTreeSet<_>>());
}

/// Ends a container whose program posts, as an engine does.
async fn drains(container: &mut Container) {
    container.drain().await;
    let drained = container.log().find(|line| line.contains("Drained: no work is in progress").then_some(()));
    assert!(drained.is_some(), "{}", container.log().lines().join("\n"));
}
