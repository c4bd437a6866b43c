//! A Java development kit, and the SOAP library of Java, which JDKs contained until version 10.

use std::path::Path;

use crate::debian;
use crate::process::succeeds;

/// The packages of JAX-WS with the generator of clients, and those that they need.
const JAX_WS: [&str; 25] = [
    "libactivation-java",
    "libcodemodel-java",
    "libdtd-parser-java",
    "libfastinfoset-java",
    "libgeronimo-annotation-1.3-spec-java",
    "libgmbal-java",
    "libistack-commons-java",
    "libjaxb-api-java",
    "libjaxb-java",
    "libjaxws-api-java",
    "libjaxws-java",
    "libjws-api-java",
    "libmetro-policy-java",
    "libmimepull-java",
    "librelaxng-datatype-java",
    "librngom-java",
    "libsaaj-java",
    "libsaaj-ri-java",
    "libstax-ex-java",
    "libstax2-api-java",
    "libstreambuffer-java",
    "libtxw2-java",
    "libwoodstox-java",
    "libxml-commons-resolver1.1-java",
    "libxsom-java",
];

/// Returns whether there is a Java that can compile. If there is none, the clients in Java are skipped, except in CI.
///
/// # Panics
/// When there is none in CI.
pub fn has_jdk() -> bool {
    if succeeds("java", &["--version"]) && succeeds("javac", &["--version"]) {
        return true;
    }
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let missing = "there is no JDK, so clients in Java are not tested \
                   (Debian: `apt-get install default-jdk-headless`)";
    assert!(!is_ci, "{missing}");
    eprintln!("skipped: {missing}");
    false
}

/// Returns the class path with JAX-WS, unpacked from Debian's packages.
///
/// # Panics
/// When the packages cannot be downloaded or unpacked.
pub fn jax_ws() -> String {
    let jars = |directory: &Path| directory.join("usr/share/java");
    // The last package that is unpacked.
    let is_usable = |directory: &Path| jars(directory).join("xsom.jar").exists();
    let hint = "the tests generate a SOAP client in Java with JAX-WS, from Debian's packages";
    format!("{}/*", jars(&debian::unpacked("jax-ws", &JAX_WS, is_usable, hint)).display())
}
