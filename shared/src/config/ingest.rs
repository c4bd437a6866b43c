//! The ingest queues: tables `[ingest.NAME]` of the configuration file, and variables `POSTONCE_INGEST_NAME_…`. Their names are
//! not known before, so they are no options of the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::error::ConfigError;
use super::in_force::{Origin, SettingInForce};
use super::values::{milliseconds, partner};
use crate::domain::ids::PartnerId;
use crate::ports::queue::QueueName;

/// Maximum number of ingest queues.
const QUEUES_MAX: usize = 64;
/// Maximum length of the name of an ingest queue in the configuration, in characters.
const NAME_CHARS_MAX: usize = 32;
/// The last parts of the names of a queue's settings.
const QUEUE: &str = "queue";
const PARTNER: &str = "partner";
const POLL_MAX: &str = "poll-max-ms";
const MEMBERS: [&str; 3] = [QUEUE, PARTNER, POLL_MAX];
const POLL_MAX_MS: &str = "60000";
/// Prefix of the settings, and the table of the file.
pub(super) const INGEST: &str = "ingest";
const VARIABLE_PREFIX: &str = "POSTONCE_INGEST_";

/// A queue of direct producers, from which workers accept orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestQueue {
    /// The name in the configuration.
    pub name: String,
    /// The queue from which workers receive.
    pub queue: QueueName,
    /// The partner for which its orders are accepted.
    pub partner: PartnerId,
    /// Maximum interval between two polls of the empty queue by all workers together.
    pub poll_max: Duration,
}

/// Returns the variable patterns of these settings, for an error about a mistyped variable.
pub(super) fn variable_patterns() -> [String; 3] {
    MEMBERS.map(|member| format!("{VARIABLE_PREFIX}NAME{}", suffix_of(member)))
}

/// Returns the end of the variables of a setting.
fn suffix_of(member: &str) -> String {
    format!("_{}", member.replace('-', "_").to_ascii_uppercase())
}

/// Returns the setting of a variable, such as `ingest.some-name.queue`; `None` if it is not of an ingest queue.
pub(super) fn setting_of(variable: &str) -> Option<String> {
    let rest = variable.strip_prefix(VARIABLE_PREFIX)?;
    let (name, member) = MEMBERS
        .into_iter()
        .find_map(|member| Some((rest.strip_suffix(suffix_of(member).as_str())?, member)))?;
    let is_upper = !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_lowercase());
    is_upper.then(|| format!("{INGEST}.{}.{member}", name.replace('_', "-").to_ascii_lowercase()))
}

/// Adds the values of the table `ingest` of a configuration file to `values`, as settings such as `ingest.some-name.queue`.
pub(super) fn read_table(
    path: &Path,
    table: toml::Value,
    values: &mut BTreeMap<String, String>,
) -> Vec<ConfigError> {
    let must_be_table = |setting: String, value: &toml::Value| {
        let allowed = "must be a table, such as [ingest.orders]".to_owned();
        refused(&setting, value.to_string(), &Origin::File(path.to_owned()), allowed)
    };
    let toml::Value::Table(queues) = table else { return vec![must_be_table(INGEST.to_owned(), &table)] };
    let mut errors = Vec::new();
    for (name, members) in queues {
        let toml::Value::Table(members) = members else {
            errors.push(must_be_table(format!("{INGEST}.{name}"), &members));
            continue;
        };
        if members.is_empty() {
            let (setting, origin) = (format!("{INGEST}.{name}.{QUEUE}"), Origin::File(path.to_owned()));
            errors.push(refused(&setting, String::new(), &origin, "must be set".to_owned()));
        }
        for (member, value) in members {
            let (setting, normal) = (format!("{INGEST}.{name}.{member}"), member.replace('_', "-"));
            if !MEMBERS.contains(&normal.as_str()) {
                let nearest = super::nearest::nearest(&normal, &MEMBERS).replace('-', "_");
                errors.push(ConfigError::UnknownSetting {
                    name: setting,
                    nearest: format!("{INGEST}.{name}.{nearest}"),
                });
            } else if !value.is_str() && normal != POLL_MAX {
                let (origin, allowed) =
                    (Origin::File(path.to_owned()), "must be a text in quotes".to_owned());
                errors.push(refused(&setting, value.to_string(), &origin, allowed));
            } else {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                if values.insert(format!("{INGEST}.{name}.{normal}"), text).is_some() {
                    errors.push(ConfigError::Repeated { name: setting });
                }
            }
        }
    }
    errors
}

/// The values of these settings, each with its source.
pub(super) struct IngestSettings(BTreeMap<String, (String, Origin)>);

impl IngestSettings {
    /// Merges the values of variables, by setting, with those of the configuration file.
    pub(super) fn merge(
        environment: &BTreeMap<String, String>,
        file: &Path,
        values: &BTreeMap<String, String>,
    ) -> Self {
        let prefix = format!("{INGEST}.");
        let in_file = values.iter().filter(|(setting, _)| setting.starts_with(&prefix));
        let in_file =
            in_file.map(|(setting, value)| (setting.clone(), (value.clone(), Origin::File(file.to_owned()))));
        let in_environment = environment.iter();
        let in_environment =
            in_environment.map(|(setting, value)| (setting.clone(), (value.clone(), Origin::Environment)));
        Self(in_file.chain(in_environment).collect())
    }

    /// Returns all queues, by name. Adds all values that are not allowed to `errors`. `name_prefix` begins the queues of the bank.
    pub(super) fn queues(&self, name_prefix: &str, errors: &mut Vec<ConfigError>) -> Vec<IngestQueue> {
        let mut queues: Vec<IngestQueue> = Vec::new();
        let names = self.names();
        if names.len() > QUEUES_MAX {
            let (value, allowed) =
                (names.len().to_string(), format!("must have at most {QUEUES_MAX} queues"));
            errors.push(refused(INGEST, value, &Origin::Default, allowed));
        }
        for name in names {
            let setting = |member: &str| format!("{INGEST}.{name}.{member}");
            let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            if !(1..=NAME_CHARS_MAX).contains(&name.len()) || !name.bytes().all(is_allowed) {
                let allowed = format!("must be 1 to {NAME_CHARS_MAX} lower-case letters, digits and -");
                errors.push(refused(
                    &format!("{INGEST}.NAME"),
                    name.to_owned(),
                    self.origin_of(name),
                    allowed,
                ));
            }
            let queue = self.parse(&setting(QUEUE), None, |text| queue_name(text, name_prefix), errors);
            let partner = self.parse(&setting(PARTNER), None, partner, errors);
            let poll_max =
                self.parse(&setting(POLL_MAX), Some(POLL_MAX_MS), milliseconds(100..=60_000), errors);
            if let Some(taken) = queues.iter().find(|other| Some(&other.queue) == queue.as_ref()) {
                let allowed = format!("must not be the queue of {INGEST}.{}.{QUEUE}", taken.name);
                errors.push(self.refuse(&setting(QUEUE), allowed));
                continue;
            }
            if let (Some(queue), Some(partner), Some(poll_max)) = (queue, partner, poll_max) {
                queues.push(IngestQueue { name: name.to_owned(), queue, partner, poll_max });
            }
        }
        queues
    }

    /// Returns the settings of all queues with their values.
    pub(super) fn in_force(&self) -> Vec<SettingInForce> {
        let of_queue = |name: &str| {
            MEMBERS.map(|member| {
                let setting = format!("{INGEST}.{name}.{member}");
                let default = || ((member == POLL_MAX).then(|| POLL_MAX_MS.to_owned()), Origin::Default);
                let set = self.0.get(&setting).cloned();
                let (value, origin) = set.map_or_else(default, |(value, origin)| (Some(value), origin));
                SettingInForce { name: setting, group: "Ingest queues".to_owned(), value, origin }
            })
        };
        self.names().into_iter().flat_map(of_queue).collect()
    }

    fn names(&self) -> BTreeSet<&str> {
        let parts = self.0.keys().filter_map(|setting| setting.split_once('.')?.1.rsplit_once('.'));
        parts.map(|(name, _)| name).collect()
    }

    /// Returns where a queue is configured.
    fn origin_of(&self, name: &str) -> &Origin {
        let of_queue = |setting: &str| setting.starts_with(&format!("{INGEST}.{name}."));
        let found = self.0.iter().find(|(setting, _)| of_queue(setting));
        found.map_or(&Origin::Default, |(_, (_, origin))| origin)
    }

    fn parse<T>(
        &self,
        setting: &str,
        default: Option<&str>,
        parse: impl Fn(&str) -> Result<T, String>,
        errors: &mut Vec<ConfigError>,
    ) -> Option<T> {
        let Some(text) = self.0.get(setting).map(|(text, _)| text.as_str()).or(default) else {
            errors.push(self.refuse(setting, "must be set".to_owned()));
            return None;
        };
        parse(text).map_err(|allowed| errors.push(self.refuse(setting, allowed))).ok()
    }

    fn refuse(&self, setting: &str, allowed: String) -> ConfigError {
        let (value, origin) = self.0.get(setting).cloned().unwrap_or((String::new(), Origin::Default));
        refused(setting, value, &origin, allowed)
    }
}

fn refused(setting: &str, value: String, origin: &Origin, allowed: String) -> ConfigError {
    ConfigError::Value { setting: setting.to_owned(), value, source_of_value: origin.words(), allowed }
}

fn queue_name(text: &str, name_prefix: &str) -> Result<QueueName, String> {
    if text.strip_prefix(name_prefix).is_some_and(|rest| rest.starts_with('-')) {
        return Err(format!("must not begin with {name_prefix}-, like the queues of the bank itself"));
    }
    QueueName::of_ingest(text).ok_or_else(|| {
        "must be a queue: 3 to 63 lower-case letters, digits and single hyphens, with a letter or a digit at both ends".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    use crate::config::{Config, ConfigErrors, add_settings};

    fn read(file: &str, variables: &[(&str, &str)]) -> Result<(Config, Vec<SettingInForce>), ConfigErrors> {
        let matches = add_settings(Command::new("test")).try_get_matches_from(["test"]).unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        let (values, errors) = super::super::sources::parse_file(Path::new("bank.toml"), file);
        Config::merged(&matches, &variables.collect(), (Path::new("bank.toml"), values, errors))
    }

    fn errors(file: &str, variables: &[(&str, &str)]) -> Vec<String> {
        read(file, variables).map(|(config, _)| config.ingest).unwrap_err().texts()
    }

    #[test]
    fn queues_come_from_tables_and_variables() {
        let file = "[ingest.shop-1]\nqueue = 'orders'\npartner = 'shop'\npoll_max_ms = 500\n\
                    [ingest.b]\nqueue = \"from-file\"\npartner = 'b'\n";
        let variables = [
            ("POSTONCE_INGEST_B_QUEUE", "work-0"),
            ("POSTONCE_INGEST_A_QUEUE_QUEUE", "abc"),
            ("POSTONCE_INGEST_A_QUEUE_PARTNER", "a"),
            ("POSTONCE_INGEST_A_QUEUE_POLL_MAX_MS", "100"),
        ];
        let (config, in_force) = read(file, &variables).unwrap();
        let queue = |name: &str, queue: &str, partner: &str, ms| IngestQueue {
            name: name.to_owned(),
            queue: QueueName::of_ingest(queue).unwrap(),
            partner: PartnerId::parse(partner).unwrap(),
            poll_max: Duration::from_millis(ms),
        };
        let expected = [
            queue("a-queue", "abc", "a", 100),
            queue("b", "work-0", "b", 60_000),
            queue("shop-1", "orders", "shop", 500),
        ];
        assert_eq!(config.ingest, expected);
        let shown: Vec<String> = in_force
            .iter()
            .filter(|setting| setting.name.starts_with("ingest."))
            .map(|it| format!("{} {} {}", it.name, it.value.as_deref().unwrap_or("-"), it.place()))
            .collect();
        assert!(shown.contains(&"ingest.b.queue work-0 POSTONCE_INGEST_B_QUEUE".to_owned()), "{shown:?}");
        assert!(shown.contains(&"ingest.b.poll-max-ms 60000 default".to_owned()), "{shown:?}");
        assert!(shown.contains(&"ingest.shop-1.poll-max-ms 500 bank.toml".to_owned()), "{shown:?}");
        assert_eq!(shown.len(), 9);
        assert_eq!(read("", &[]).unwrap().0.ingest, []);
    }

    #[test]
    fn every_value_that_is_not_allowed_is_an_error_with_its_setting() {
        let file = "[ingest.Shop]\nqueue = 'Orders'\n\
                    [ingest.own]\nqueue = 'postonce-work-0'\npartner = 'Own'\npoll_max_ms = 99\n\
                    [ingest.text]\nqueue = 7\npartner = 'a'\nqueues = 'b'\n";
        let found = errors(file, &[]);
        let expected = [
            "ingest.text.queue is \"7\" (in the configuration file), which is not allowed: it must be a text in quotes",
            "has \"ingest.text.queues\", which is not a setting: the nearest one is ingest.text.queue ",
            "ingest.NAME is \"Shop\" (in the configuration file), which is not allowed: it must be 1 to 32 lower-case letters",
            "ingest.Shop.queue is \"Orders\" (in the configuration file), which is not allowed: it must be a queue: 3 to 63",
            "ingest.Shop.partner is \"\" (by default), which is not allowed: it must be set",
            "ingest.own.queue is \"postonce-work-0\" (in the configuration file), which is not allowed: it must not begin with postonce-,",
            "ingest.own.partner is \"Own\" (in the configuration file), which is not allowed: it must be a partner",
            "ingest.own.poll-max-ms is \"99\" (in the configuration file), which is not allowed: it must be a whole number from 100 to 60000",
        ];
        for words in expected {
            assert_eq!(found.iter().filter(|error| error.contains(words)).count(), 1, "{words}: {found:#?}");
        }
        let long = format!("[ingest.{}]\nqueue = 'abc'\npartner = 'a'\n", "x".repeat(33));
        assert!(errors(&long, &[])[0].contains("must be 1 to 32 lower-case letters"));
        assert!(errors("ingest = 3\n", &[])[0].contains("must be a table, such as [ingest.orders]"));
        assert!(errors("[ingest]\norders = 'x'\n", &[])[0].contains("ingest.orders is"));
        let idle = "workers_min = 0\n[ingest.orders]\nqueue = 'abc'\npartner = 'a'\n";
        assert!(errors(idle, &[])[0].contains("workers-min is \"0\""));
        let unknown = errors("", &[("POSTONCE_INGEST_ORDERS_QUEU", "x")]);
        assert!(unknown[0].contains("the nearest one is POSTONCE_INGEST_NAME_QUEUE "), "{unknown:?}");
        assert_eq!(errors("", &[("POSTONCE_INGEST_QUEUE", "abc")]).len(), 1);
        assert!(errors("[ingest.orders]\n", &[])[0].contains("ingest.orders.queue is \"\""));
    }

    #[test]
    fn two_queues_have_different_names_and_there_are_at_most_64() {
        let table = |name: usize, queue: usize| {
            format!("[ingest.q{name:03}]\nqueue = 'orders-{queue}'\npartner = 'a'\n")
        };
        let of = |count: usize| (0..count).map(|number| table(number, number)).collect::<String>();
        assert_eq!(read(&of(64), &[]).unwrap().0.ingest.len(), 64);
        assert_eq!(errors(&of(65), &[]).len(), 1);
        let found = errors(&[table(1, 1), table(2, 1)].concat(), &[]);
        assert!(
            found[0].contains("ingest.q002.queue is \"orders-1\"")
                && found[0].contains("must not be the queue of ingest.q001.queue"),
            "{found:?}"
        );
    }
}
