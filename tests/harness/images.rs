//! Container images, built by Buildah from the Containerfile, the compiled programs, and a base of Debian packages, so no
//! registry is needed. Root is needed, for this process or through sudo.
//!
//! All images are in a directory below Cargo's directory, which is removed when the test process ends. Only Buildah's list of
//! layer hashes remains on the machine, because no option moves it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binaries::Binary;
use crate::debian;
use crate::deployment::{items, number, text};
use crate::process::{Launch, succeeds};
use crate::{process_guard, workspace};

/// Programs that have an image.
pub const PROGRAMS: [Binary; 2] = [Binary::Web, Binary::Worker];
/// Version in the labels of the images.
pub const VERSION: &str = "1.2.3";
/// Revision in the labels of the images.
pub const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";

const INSTALL_TIME_MAX: Duration = Duration::from_secs(300);
/// Maximum time of one step, on a machine that runs other tests.
const STEP_TIME_MAX: Duration = Duration::from_secs(180);
const INSTALL: &str = "apt-get update -q && DEBIAN_FRONTEND=noninteractive \
                       apt-get install -qy --no-install-recommends buildah crun binutils";
/// Failure message on a machine that cannot build or start images.
pub(crate) const HINT: &str = "the tests build images with buildah and start them with crun, as root or with sudo; \
                               something of that is missing here (Debian: `apt-get install buildah crun binutils`)";

const CONTAINERFILE: &str = "deploy/container/Containerfile";
/// Packages that the programs need: directories, the C library, and libgcc.
const BASE_PACKAGES: [&str; 3] = ["base-files", "libc6", "libgcc-s1"];
const BASE: &str = "localhost/base";
const BASE_CONTAINERFILE: &str = "FROM scratch\nCOPY . /\n";
/// Does not pull images. With layers, Buildah of Debian 12 loses the empty directory that `WORKDIR` creates. The kind of
/// isolation does not matter, because the build runs nothing.
const BUILD: [&str; 6] =
    ["build", "--format=docker", "--pull=never", "--layers=false", "--isolation=chroot", "--quiet"];

/// The images of both programs.
#[derive(Debug)]
pub struct Images {
    folder: Folder,
    web: Image,
    worker: Image,
}

/// The directory of the base, the compiled programs, and the images.
#[derive(Debug)]
struct Folder(PathBuf);

/// A built image.
#[derive(Debug)]
pub struct Image {
    name: String,
    /// Manifest and configuration, as Buildah prints them.
    inspected: Value,
    /// Root file system of a container of this image.
    root: PathBuf,
}

impl Images {
    /// Returns the images, which are built once for all tests of this process.
    ///
    /// # Panics
    /// When a tool is missing and cannot be installed, or a step fails.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Images> = OnceLock::new();
        SHARED.get_or_init(|| {
            let folder = Folder::prepare();
            let [web, worker] = ["web", "worker"].map(|stage| folder.build(stage));
            Self { folder, web, worker }
        })
    }

    /// Returns the image of a program.
    ///
    /// # Panics
    /// When the program has no image.
    pub fn of(&self, program: Binary) -> &Image {
        match program {
            Binary::Web => &self.web,
            Binary::Worker => &self.worker,
            Binary::CrashingWorker | Binary::PeerClassic | Binary::PeerPostgres => panic!("it has no image"),
        }
    }

    /// Returns the size of an image in a registry, which is the size of its compressed layers.
    ///
    /// # Panics
    /// When the image cannot be compressed.
    pub fn compressed_bytes(&self, image: &Image) -> u64 {
        // This format compresses layers as a registry does.
        let pushed = self.folder.path(&format!("pushed-{}", image.name));
        let [source, target] = [format!("localhost/{}", image.name), format!("oci:{}", pushed.display())];
        succeed(&self.folder.buildah("push").arguments(["push", "--quiet", &source, &target]));
        let json = |file: &str| -> Value {
            let text = fs::read_to_string(pushed.join(file)).expect("a file of the image");
            serde_json::from_str(&text).expect("JSON")
        };
        let (index, digest) = (json("index.json"), "/manifests/0/digest");
        let manifest = json(&format!("blobs/{}", text(&index, digest).replace(':', "/")));
        let layers = items(&manifest["layers"]);
        assert!(!layers.is_empty(), "{manifest:#}");
        layers.iter().map(|layer| number(layer, "/size")).sum()
    }

    /// Creates a directory beside the images.
    pub(crate) fn new_folder(&self) -> PathBuf {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.path(&format!("container-{number}"));
        fs::create_dir(&folder).expect("a folder for a container");
        folder
    }
}

impl Folder {
    /// Creates the base, and copies the programs under test without debug information.
    fn prepare() -> Self {
        install();
        let directory = TempDir::with_prefix_in("images-", workspace::target_directory());
        let directory = directory.expect("a folder for images").keep();
        process_guard::remove(&directory);
        let folder = Self(directory);
        let finished = folder.context().join("target/container");
        for folder in [finished.join("programs"), finished.join("sbom"), folder.path("tmp")] {
            fs::create_dir_all(folder).expect("a folder for images");
        }
        for program in PROGRAMS {
            let stripped = finished.join("programs").join(program.name());
            let strip = Launch::of("strip", "strip", &finished).arguments(["-o"]);
            succeed(&strip.arguments([&*stripped, program.path()]));
            let list = finished.join("sbom").join(list_name(program));
            fs::write(&list, dependencies(program)).expect("a file");
            // Set explicitly, because the umask of this process may be restrictive.
            for (file, mode) in [(stripped, 0o755), (list, 0o644)] {
                fs::set_permissions(file, Permissions::from_mode(mode)).expect("a mode");
            }
        }
        let containerfile = folder.path("base.Containerfile");
        fs::write(&containerfile, BASE_CONTAINERFILE).expect("a file");
        let build = folder.buildah("build of the base").arguments(BUILD).arguments(["--tag", BASE, "--file"]);
        succeed(&build.arguments([containerfile, base()]));
        folder
    }

    /// Builds a stage of the Containerfile.
    fn build(&self, stage: &str) -> Image {
        let name = format!("localhost/{stage}");
        let arguments =
            [("BASE", BASE), ("PROGRAMS", "finished"), ("VERSION", VERSION), ("REVISION", REVISION)];
        let arguments =
            arguments.iter().flat_map(|(name, value)| ["--build-arg".to_owned(), format!("{name}={value}")]);
        let build = self
            .buildah(&format!("build of {stage}"))
            .arguments(BUILD)
            .arguments(["--target", stage, "--tag", &name])
            .arguments(arguments)
            .arguments(["--file"]);
        succeed(&build.arguments([workspace::root().join(CONTAINERFILE), self.context()]));

        let inspect = self.buildah("inspect").arguments(["inspect", "--type=image", &name]);
        let inspected = serde_json::from_str(&output_of(&inspect)).expect("it prints JSON");
        output_of(&self.buildah("from").arguments(["from", "--pull=never", "--name", stage, &name]));
        let root = output_of(&self.buildah("mount").arguments(["mount", stage]));
        Image { name: stage.to_owned(), inspected, root: PathBuf::from(root.trim()) }
    }

    /// Returns a path in the directory of the images.
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn context(&self) -> PathBuf {
        self.path("context")
    }

    fn buildah(&self, name: &str) -> Launch {
        let temporary = format!("TMPDIR={}", self.path("tmp").display());
        let launch = debian::privileged(name, "env", HINT).arguments([&*temporary, "buildah", "--root"]);
        // Copies whole file systems. Overlays are faster, but some file systems do not support them.
        let launch =
            launch.arguments([self.path("storage")]).arguments(["--storage-driver", "vfs", "--runroot"]);
        launch.arguments([self.path("run")])
    }
}

impl Image {
    /// Returns the stage of the Containerfile, which is the name of the image.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the configuration for containers, such as `User` and `Healthcheck`.
    pub fn config(&self) -> &Value {
        self.inspected.pointer("/Docker/config").unwrap_or(&Value::Null)
    }

    /// Returns the media type of the manifest.
    ///
    /// # Panics
    /// When the manifest has no media type.
    pub fn media_type(&self) -> String {
        let manifest: Value = serde_json::from_str(text(&self.inspected, "/Manifest")).expect("JSON");
        text(&manifest, "/mediaType").to_owned()
    }

    /// Returns the root file system of a container of this image, on this machine. Only root can read it.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path on this machine of a file in the image.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file.trim_start_matches('/'))
    }

    /// Reads a file in the image.
    ///
    /// # Panics
    /// When the file is missing.
    pub fn read(&self, file: &str) -> String {
        output_of(&debian::privileged("cat", "cat", HINT).arguments([self.path(file)]))
    }

    /// Returns the owner, group and mode of a file in the image, such as `0:0 755`.
    ///
    /// # Panics
    /// When the file is missing.
    pub fn owner(&self, file: &str) -> String {
        let stat = debian::privileged("stat", "stat", HINT).arguments(["--format=%u:%g %a"]);
        output_of(&stat.arguments([self.path(file)])).trim().to_owned()
    }
}

/// Returns the file name of the dependency list of a program.
pub fn list_name(program: Binary) -> String {
    format!("{}.cdx.json", program.name())
}

/// Returns a placeholder for the dependency list of a program, because the tests do not compile with `cargo auditable`.
pub fn dependencies(program: Binary) -> String {
    let components = json!([{"type": "application", "name": program.name()}]);
    json!({"bomFormat": "CycloneDX", "specVersion": "1.3", "components": components}).to_string()
}

/// Runs a program to completion.
///
/// # Panics
/// When the program fails, with its output.
pub(crate) fn succeed(launch: &Launch) {
    let (status, lines) = launch.run(STEP_TIME_MAX);
    assert!(status.success(), "{}: {}", launch.name, lines.join("\n"));
}

/// Runs a program to completion, and returns its standard output.
///
/// # Panics
/// When the program fails, with its standard error.
pub(crate) fn output_of(launch: &Launch) -> String {
    let output =
        Command::new(&launch.program).args(&launch.arguments).current_dir(&launch.directory).output();
    let output = output.unwrap_or_else(|error| panic!("{} cannot be started: {error}", launch.name));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", launch.name);
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}

/// Installs the tools if they are missing.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        if ["buildah", "crun", "strip"].iter().all(|program| succeeds(program, &["--version"])) {
            return;
        }
        let (status, output) =
            debian::as_root("apt-get install buildah", INSTALL, HINT).run(INSTALL_TIME_MAX);
        assert!(status.success(), "{HINT}; it printed\n{}", output.join("\n"));
    });
}

/// Returns a directory with the content of the base. It is unpacked again after an update of the C library of this machine,
/// because the programs are linked with that library.
fn base() -> PathBuf {
    let directory = workspace::target_directory().join("image-base");
    let (root, stamp) = (directory.join("root"), directory.join("unpacked-for"));
    fs::create_dir_all(&directory).expect("Cargo's directory can be written");
    // One process unpacks it. Others that start at the same time wait here.
    let lock_file = File::create(directory.join("lock")).expect("Cargo's directory can be written");
    lock_file.lock().expect("a file can be locked");
    let query = Launch::of("dpkg-query", "dpkg-query", &directory);
    let version = output_of(&query.arguments(["--show", "--showformat=${Version}", "libc6"]));
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&version) {
        if root.exists() {
            fs::remove_dir_all(&root).expect("an old base can be removed");
        }
        fs::create_dir_all(&root).expect("Cargo's directory can be written");
        debian::unpack(&BASE_PACKAGES, &root, HINT);
        fs::write(&stamp, version).expect("Cargo's directory can be written");
    }
    root
}
