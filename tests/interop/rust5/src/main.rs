//! Apache's client of 5.x for Rust, which has producers and simple consumers: the scenarios of
//! `java/grpc5/Scenarios.java`. Each argument after the endpoints is `scenario=topic`, whose group is the topic and
//! `-g`. Prints `passed scenario` or `failed scenario: why`. The variables INTEROP_ACCESS_KEY, INTEROP_SECRET_KEY and
//! INTEROP_TLS choose how it connects.

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

const WAIT: Duration = Duration::from_secs(40);

struct Failure(String);

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure(format!("{error:?}"))
    }
}

type Done = Result<(), Failure>;

fn check(condition: bool, what: impl Into<String>) -> Done {
    if condition { Ok(()) } else { Err(Failure(what.into())) }
}

#[tokio::main]
async fn main() {
    let mut running = Vec::new();
    for argument in env::args().skip(2) {
        let (name, topic) = argument.split_once('=').expect("scenario=topic");
        let (name, topic) = (name.to_string(), topic.to_string());
        running.push(tokio::spawn(async move {
            match run(&name, &topic).await {
                Ok(()) => println!("passed {name}"),
                Err(Failure(why)) => println!("failed {name}: {}", why.replace('\n', " ")),
            }
        }));
    }
    for each in running {
        each.await.expect("a scenario that does not panic");
    }
}

async fn run(name: &str, topic: &str) -> Done {
    match name {
        "normal" => normal(topic).await,
        "async" => concurrent(topic).await,
        "simple" => simple(topic).await,
        "fifo" => fifo(topic).await,
        "delay" => delay(topic).await,
        "transaction" => transaction(topic).await,
        "orphan" => orphan(topic).await,
        "tag" => filtered(topic, FilterExpression::new(FilterType::Tag, "a || c"), "a0 c2").await,
        "sql" => filtered(topic, FilterExpression::new(FilterType::Sql, "n > 0"), "b1 c2").await,
        "large" => large(topic).await,
        "wrong-type" => wrong_type(topic).await,
        "mixed" => mixed(topic).await,
        "unknown" => refused(topic, "TOPIC_NOT_FOUND").await,
        "refused" => refused(topic, "UNAUTHORIZED").await,
        _ => Err(Failure("no such scenario".to_string())),
    }
}

// ---- what the scenarios share ----

fn options() -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(env::args().nth(1).expect("endpoints"));
    option.set_timeout(Duration::from_secs(10));
    option.set_long_polling_timeout(Duration::from_secs(10));
    option.set_enable_tls(env::var("INTEROP_TLS").is_ok());
    if let (Ok(key), Ok(secret)) = (env::var("INTEROP_ACCESS_KEY"), env::var("INTEROP_SECRET_KEY")) {
        option.set_access_key(key);
        option.set_secret_key(secret);
    }
    option
}

fn publishing(topic: &str) -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    option
}

async fn producer(topic: &str) -> Result<Producer, ClientError> {
    let mut made = Producer::new(publishing(topic), options())?;
    made.start().await?;
    Ok(made)
}

/// Its checker commits what has the body `yes`, and leaves `unknown` open.
async fn transaction_producer(topic: &str) -> Result<Producer, ClientError> {
    let check = |_: String, view: MessageView| match view.body() {
        b"yes" => TransactionResolution::COMMIT,
        b"no" => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    };
    let mut made = Producer::new_transaction_producer(publishing(topic), options(), Box::new(check))?;
    made.start().await?;
    Ok(made)
}

async fn consumer(topic: &str) -> Result<SimpleConsumer, ClientError> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic]);
    option.set_consumer_group(format!("{topic}-g"));
    let mut made = SimpleConsumer::new(option, options())?;
    made.start().await?;
    Ok(made)
}

fn message(topic: &str, body: impl Into<Vec<u8>>) -> MessageBuilder {
    MessageBuilder::builder().set_topic(topic).set_body(body.into())
}

/// So many messages or more, acknowledged.
async fn received(
    consumer: &SimpleConsumer,
    topic: &str,
    filter: &FilterExpression,
    count: usize,
) -> Result<Vec<MessageView>, Failure> {
    let mut found = Vec::new();
    let began = Instant::now();
    while found.len() < count {
        for view in consumer.receive(topic, filter).await? {
            consumer.ack(&view).await?;
            found.push(view);
        }
        check(began.elapsed() < WAIT, format!("{count} messages, but {:?}", bodies(&found)))?;
    }
    Ok(found)
}

async fn all(topic: &str, count: usize) -> Result<Vec<MessageView>, Failure> {
    let consumer = consumer(topic).await?;
    received(&consumer, topic, &FilterExpression::new(FilterType::Tag, "*"), count).await
}

fn bodies(views: &[MessageView]) -> Vec<String> {
    views.iter().map(|view| String::from_utf8_lossy(view.body()).into_owned()).collect()
}

fn sorted(views: &[MessageView]) -> String {
    let mut found = bodies(views);
    found.sort();
    found.join(" ")
}

// ---- the scenarios ----

async fn normal(topic: &str) -> Done {
    let sender = producer(topic).await?;
    for n in 0..20 {
        let made = message(topic, format!("body{n}"))
            .set_tag("tag")
            .set_keys(vec![format!("k{n}"), "all".to_string()])
            .set_properties([("n", n.to_string())].into());
        sender.send(made.build()?).await?;
    }
    let found = all(topic, 20).await?;
    let view = found.iter().find(|view| view.body() == b"body7").expect("all bodies");
    check(view.tag() == Some("tag") && view.keys() == ["k7", "all"], "tag and keys")?;
    check(view.properties().len() == 1 && view.properties()["n"] == "7", format!("{:?}", view.properties()))?;
    check(view.delivery_attempt() == 1, format!("attempt {}", view.delivery_attempt()))?;
    Ok(sender.shutdown().await?)
}

async fn concurrent(topic: &str) -> Done {
    let sender = Arc::new(producer(topic).await?);
    let mut sends = Vec::new();
    for n in 0..300 {
        let (sender, made) = (Arc::clone(&sender), message(topic, n.to_string()));
        sends.push(tokio::spawn(async move { sender.send(made.build()?).await }));
    }
    for each in sends {
        each.await.expect("a send that does not panic")?;
    }
    let mut found = bodies(&all(topic, 300).await?);
    found.sort();
    found.dedup();
    check(found.len() == 300, "some came twice")
}

async fn simple(topic: &str) -> Done {
    let sender = producer(topic).await?;
    let batch = (0..5).map(|n| message(topic, n.to_string()).build());
    let receipts = sender.batch_send(batch.collect::<Result<Vec<_>, _>>()?).await?;
    check(receipts.len() == 5, format!("{} receipts of a batch of 5", receipts.len()))?;
    let consumer = consumer(topic).await?;
    let found = received(&consumer, topic, &FilterExpression::new(FilterType::Tag, "*"), 5).await?;
    check(sorted(&found) == "0 1 2 3 4", sorted(&found))?;
    let mut ids: Vec<&str> = found.iter().map(|view| view.message_id()).collect();
    let mut sent: Vec<&str> = receipts.iter().map(|each| each.message_id()).collect();
    ids.sort();
    sent.sort();
    check(ids == sent, format!("sent {sent:?}, received {ids:?}"))?;
    Ok(consumer.shutdown().await?)
}

async fn fifo(topic: &str) -> Done {
    let sender = producer(topic).await?;
    for n in 0..10 {
        sender.send(message(topic, n.to_string()).set_message_group("one").build()?).await?;
    }
    let found = all(topic, 10).await?;
    check(bodies(&found).concat() == "0123456789", sorted(&found))?;
    check(found[0].message_group() == Some("one"), "message group")
}

async fn delay(topic: &str) -> Done {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs_f64();
    let due = now() as i64 + 3;
    producer(topic).await?.send(message(topic, "later").set_delivery_timestamp(due).build()?).await?;
    let found = all(topic, 1).await?;
    check(now() > due as f64 - 0.2, "too early")?;
    check(found[0].delivery_timestamp() == Some(due), format!("{:?}", found[0].delivery_timestamp()))
}

async fn transaction(topic: &str) -> Done {
    let sender = transaction_producer(topic).await?;
    for n in 0..4 {
        let made = MessageBuilder::transaction_message_builder(topic, n.to_string().into_bytes()).build()?;
        let begun = sender.send_transaction_message(made).await?;
        if n % 2 == 0 { begun.commit().await? } else { begun.rollback().await? }
    }
    let found = all(topic, 2).await?;
    check(sorted(&found) == "0 2", sorted(&found))
}

async fn orphan(topic: &str) -> Done {
    let sender = transaction_producer(topic).await?;
    for body in ["no", "yes"] {
        let made = MessageBuilder::transaction_message_builder(topic, body.as_bytes().to_vec()).build()?;
        sender.send_transaction_message(made).await?;
    }
    let found = all(topic, 1).await?;
    check(sorted(&found) == "yes", sorted(&found))
}

async fn filtered(topic: &str, filter: FilterExpression, expected: &str) -> Done {
    let sender = producer(topic).await?;
    for (n, tag) in ["a", "b", "c"].into_iter().enumerate() {
        let made = message(topic, format!("{tag}{n}")).set_tag(tag).set_properties([("n", n.to_string())].into());
        sender.send(made.build()?).await?;
    }
    let consumer = consumer(topic).await?;
    let found = received(&consumer, topic, &filter, 2).await?;
    check(sorted(&found) == expected, sorted(&found))
}

/// The client itself takes no answer above 4 MiB.
async fn large(topic: &str) -> Done {
    let body: Vec<u8> = (0..3u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    producer(topic).await?.send(message(topic, body.clone()).build()?).await?;
    let found = all(topic, 1).await?;
    check(found[0].body() == body, "another body")
}

async fn wrong_type(topic: &str) -> Done {
    let sent = producer(topic).await?.send(message(topic, "normal").build()?).await;
    expect(sent.err(), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE")
}

/// Remoting clients have sent three messages of the group, which has five of its own.
async fn mixed(topic: &str) -> Done {
    let sender = producer(topic).await?;
    for n in 0..5 {
        let made = message(topic, format!("grpc{n}")).set_tag("tag").set_keys(vec![format!("k{n}")]);
        sender.send(made.set_properties([("n", n.to_string())].into()).build()?).await?;
    }
    let found = sorted(&all(topic, 8).await?);
    check(found == "grpc0 grpc1 grpc2 grpc3 grpc4 remoting2 remoting3 remoting4", found.as_str())
}

/// Its producer does not start.
async fn refused(topic: &str, code: &str) -> Done {
    expect(producer(topic).await.err(), code)
}

fn expect(error: Option<ClientError>, code: &str) -> Done {
    let text = error.map_or("it was taken".to_string(), |error| format!("{error:?}"));
    check(text.contains(code), text.as_str())
}
