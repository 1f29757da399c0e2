//! Sends from many tasks, then receives all of it, by the Rust client of rocketmq-rust:
//! `rust-load NAME_SERVER TOPIC GROUP TASKS EACH`.

#![recursion_limit = "512"]

use std::collections::HashSet;
use std::env;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketmq_client_rust::{
    ClientError, ClientResult, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus, DefaultMQProducer, DefaultMQPushConsumer, MQPushConsumer,
    MessageListenerConcurrently,
};
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_observability::{install_global, TelemetryBootstrapConfig};
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};

#[derive(Clone, Default)]
struct Received(Arc<Mutex<HashSet<String>>>);

impl MessageListenerConcurrently for Received {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _context: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        let mut received = self.0.lock().unwrap();
        received.extend(messages.iter().map(|message| message.msg_id().to_string()));
        Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
    }
}

/// A message with some of: a tag, a key, up to three properties, a body that is compressed.
fn message(topic: &str, task: usize, n: usize) -> Message {
    let dice = (task * 7919 + n).wrapping_mul(2654435761) >> 4;
    let body = if n % 10 == 0 { "compresses well ".repeat(600) } else { format!("body {n}") };
    let mut builder = Message::builder().topic(topic.to_string()).body_slice(body.as_bytes());
    if dice % 5 != 0 {
        builder = builder.tags(format!("tag{}", n % 3));
    }
    if dice % 2 == 0 {
        builder = builder.key(format!("key{n}"));
    }
    for number in 0..dice % 4 {
        builder = builder.raw_property(format!("p{number}"), format!("value {dice}")).unwrap();
    }
    builder.build_unchecked()
}

#[tokio::main]
async fn main() -> ClientResult<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let (name_server, topic, group) = (words[0].clone(), words[1].clone(), words[2].clone());
    let (tasks, each): (usize, usize) = (words[3].parse().unwrap(), words[4].parse().unwrap());
    let owner = RuntimeOwner::plan(RuntimeConfig::default())
        .expect("a valid configuration")
        .build()
        .map_err(|source| ClientError::internal("make the runtime", source))?;
    let telemetry = install_global(&TelemetryBootstrapConfig::default())
        .map_err(|source| ClientError::internal("start telemetry", source))?;
    let component = owner.root_context().component("client");
    let runtime = ClientRuntime::try_new(component, ClientRuntimeConfig::default(), telemetry.handle())?;

    let mut producer = DefaultMQProducer::builder(runtime.clone())
        .producer_group(group.clone())
        .name_server_addr(name_server.clone())
        .build();
    producer.start().await?;
    let producer = Arc::new(producer);
    let mut senders = Vec::new();
    for task in 0..tasks {
        let (producer, topic) = (producer.clone(), topic.clone());
        senders.push(tokio::spawn(async move {
            let mut sent = 0;
            for n in 0..each {
                let result = producer.send(message(&topic, task, n)).await;
                sent += usize::from(matches!(result, Ok(Some(_))));
            }
            sent
        }));
    }
    let mut sent = 0;
    for sender in senders {
        sent += sender.await.unwrap();
    }

    let received = Received::default();
    let mut consumer = DefaultMQPushConsumer::builder(runtime.clone())
        .consumer_group(format!("{group}-listener"))
        .name_server_addr(name_server)
        .build();
    consumer.subscribe(&topic, "*").await?;
    consumer.register_message_listener_concurrently(received.clone());
    consumer.start().await?;
    for _ in 0..600 {
        if received.0.lock().unwrap().len() >= tasks * each {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    consumer.shutdown().await;
    println!("{{\"sent\": {sent}, \"received\": {}}}", received.0.lock().unwrap().len());
    Ok(())
}
