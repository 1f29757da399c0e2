/**
 * Apache's client of 5.x for Node.js: the scenarios of `java/grpc5/Scenarios.java`. Each argument after the endpoints
 * is `scenario=topic`, whose group is the topic and `-g`. Prints `passed scenario` or `failed scenario: why`. The
 * variables INTEROP_ACCESS_KEY, INTEROP_SECRET_KEY and INTEROP_TLS choose how it connects.
 *
 * The push consumers end with the process: their own end waits for the last long poll.
 */
const assert = require('node:assert/strict');
const { randomBytes } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } =
  require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const WAIT_MS = 40_000;
const [ endpoints, ...wanted ] = process.argv.slice(2);
const { INTEROP_ACCESS_KEY: accessKey, INTEROP_SECRET_KEY: accessSecret, INTEROP_TLS: tls } = process.env;
const logger = { debug() {}, info() {}, warn: console.error, error: console.error };
const options = {
  endpoints,
  namespace: '',
  logger,
  requestTimeout: 10_000,
  sslEnabled: tls !== undefined,
  sessionCredentials: accessKey && { accessKey, accessSecret },
};

async function producer(topic, checker) {
  const made = new Producer({ ...options, topics: [ topic ], checker });
  await made.startup();
  return made;
}

/** `seen` has what it consumed; `fails(view)`: it has failed on this one. */
async function push(topic, { filter = '*', fails = () => false } = {}) {
  const seen = [];
  const consume = async view => {
    if (fails(view)) return ConsumeResult.FAILURE;
    seen.push(view);
    return ConsumeResult.SUCCESS;
  };
  const consumer = new PushConsumer({
    ...options,
    consumerGroup: `${topic}-g`,
    subscriptions: new Map([[ topic, filter ]]),
    messageListener: { consume },
  });
  await consumer.startup();
  return seen;
}

async function simpleConsumer(topic, group = `${topic}-g`) {
  const subscriptions = new Map([[ topic, FilterExpression.SUB_ALL ]]);
  const made = new SimpleConsumer({ ...options, consumerGroup: group, subscriptions, awaitDuration: 5000 });
  await made.startup();
  return made;
}

const message = (topic, body, more = {}) => ({ topic, body: Buffer.from(body), ...more });
const bodies = views => views.map(view => view.body.toString());
const sorted = views => bodies(views).sort().join(' ');

/** What `found` returned last, as soon as it is not empty. */
async function until(found, what) {
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const value = await found();
    if (value) return value;
    assert.ok(Date.now() < deadline, what());
    await sleep(20);
  }
}

/** The client throws if a poll finds nothing. */
async function received(consumer, count) {
  try {
    return await consumer.receive(count, 15_000);
  } catch (error) {
    if (error.name === 'NotFoundException') return [];
    throw error;
  }
}

async function one(consumer) {
  return await until(async () => (await received(consumer, 1))[0], () => 'nothing was received');
}

async function consume(seen, count) {
  await until(() => seen.length >= count, () => `${count} messages, but ${bodies(seen)}`);
}

async function normal(topic) {
  const seen = await push(topic);
  const sender = await producer(topic);
  for (let n = 0; n < 20; n++) {
    const properties = new Map([[ 'n', `${n}` ]]);
    await sender.send(message(topic, `body${n}`, { tag: 'tag', keys: [ `k${n}`, 'all' ], properties }));
  }
  await consume(seen, 20);
  const view = seen.find(each => each.body.toString() === 'body7');
  assert.equal(view.tag, 'tag');
  assert.deepEqual(view.keys, [ 'k7', 'all' ]);
  assert.deepEqual([ ...view.properties ], [[ 'n', '7' ]]);
  assert.equal(view.deliveryAttempt, 1);
  assert.ok(!view.corrupted);
  await sender.shutdown();
}

async function async_(topic) {
  const seen = await push(topic);
  const sender = await producer(topic);
  await Promise.all([ ...Array(300).keys() ].map(n => sender.send(message(topic, `${n}`))));
  await consume(seen, 300);
  assert.equal(new Set(bodies(seen)).size, 300);
}

async function simple(topic) {
  const consumer = await simpleConsumer(topic);
  const sender = await producer(topic);
  for (let n = 0; n < 5; n++) await sender.send(message(topic, `${n}`));
  const seen = new Set();
  await until(async () => {
    for (const view of await received(consumer, 16)) {
      seen.add(view.body.toString());
      await consumer.ack(view);
    }
    return seen.size === 5;
  }, () => `5 messages, but ${[ ...seen ]}`);
  await consumer.shutdown();
}

async function invisible(topic) {
  const consumer = await simpleConsumer(topic);
  const sender = await producer(topic);
  await sender.send(message(topic, 'again'));
  const first = await one(consumer);
  await consumer.changeInvisibleDuration(first, 500);
  const second = await one(consumer);
  assert.equal(second.messageId, first.messageId);
  assert.equal(second.deliveryAttempt, 2);
  await consumer.ack(second);
}

async function fifo(topic) {
  const seen = await push(topic);
  const sender = await producer(topic);
  for (let n = 0; n < 10; n++) await sender.send(message(topic, `${n}`, { messageGroup: 'one' }));
  await consume(seen, 10);
  assert.equal(bodies(seen).join(''), '0123456789');
}

async function delay(topic) {
  const seen = await push(topic);
  const sender = await producer(topic);
  const due = Date.now() + 3000;
  await sender.send(message(topic, 'later', { deliveryTimestamp: new Date(due) }));
  await consume(seen, 1);
  assert.ok(Date.now() >= due - 200, `too early by ${due - Date.now()} ms`);
}

async function recall(topic) {
  const seen = await push(topic);
  const sender = await producer(topic);
  const due = Date.now() + 4000;
  const receipt = await sender.send(message(topic, 'never', { deliveryTimestamp: new Date(due) }));
  await sender.recallMessage(topic, receipt.recallHandle);
  await sleep(due + 2000 - Date.now());
  assert.equal(seen.length, 0);
}

async function transaction(topic) {
  const seen = await push(topic);
  const sender = await producer(topic, { check: async () => TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED });
  for (let n = 0; n < 4; n++) {
    const begun = sender.beginTransaction();
    await sender.send(message(topic, `${n}`), begun);
    await (n % 2 ? begun.rollback() : begun.commit());
  }
  await consume(seen, 2);
  await sleep(1000);
  assert.equal(sorted(seen), '0 2');
}

async function orphan(topic) {
  const seen = await push(topic);
  const decide = view => view.body.toString() === 'yes' ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
  const sender = await producer(topic, { check: async view => decide(view) });
  for (const body of [ 'no', 'yes' ]) await sender.send(message(topic, body), sender.beginTransaction());
  await consume(seen, 1);
  assert.equal(sorted(seen), 'yes');
}

async function retry(topic) {
  const attempts = [];
  const seen = await push(topic, { fails: view => attempts.push(view.deliveryAttempt) < 2 });
  const sender = await producer(topic);
  await sender.send(message(topic, 'twice'));
  await consume(seen, 1);
  assert.deepEqual(attempts, [ 1, 2 ]);
}

/** The group of the topic's name reads the dead letters. */
async function deadLetter(topic, more = {}) {
  await push(topic, { fails: () => true });
  const sender = await producer(topic);
  await sender.send(message(topic, 'dead', more));
  const reader = await until(() => simpleConsumer(`%DLQ%${topic}-g`, topic).catch(() => null), () => 'no dead letter');
  const view = await one(reader);
  assert.equal(view.body.toString(), 'dead');
  await reader.ack(view);
}

const filtered = (filter, expected) => async topic => {
  const seen = await push(topic, { filter });
  const sender = await producer(topic);
  for (const [ n, tag ] of [ ...'abc' ].entries()) {
    await sender.send(message(topic, tag + n, { tag, properties: new Map([[ 'n', `${n}` ]]) }));
  }
  await consume(seen, 2);
  assert.equal(sorted(seen), expected);
};

/** The client itself takes no answer above 4 MiB. */
async function large(topic) {
  const body = randomBytes(3 << 20);
  const consumer = await simpleConsumer(topic);
  const sender = await producer(topic);
  await sender.send(message(topic, body));
  const view = await one(consumer);
  assert.ok(body.equals(view.body), 'another body');
  await consumer.ack(view);
}

async function wrongType(topic) {
  const sender = await producer(topic);
  await assert.rejects(sender.send(message(topic, 'normal')), /message type not match/i);
}

async function priority(topic) {
  const consumer = await simpleConsumer(topic);
  const sender = await producer(topic);
  await sender.send(message(topic, 'p', { priority: 2 }));
  const view = await one(consumer);
  assert.equal(view.priority, 2);
  await consumer.ack(view);
}

/** Remoting clients have sent three messages of the group, which has five of its own. */
async function mixed(topic) {
  const seen = await push(topic);
  const sender = await producer(topic);
  for (let n = 0; n < 5; n++) {
    const properties = new Map([[ 'n', `${n}` ]]);
    await sender.send(message(topic, `grpc${n}`, { tag: 'tag', keys: [ `k${n}` ], properties }));
  }
  await consume(seen, 8);
  await sleep(500);
  assert.equal(sorted(seen), 'grpc0 grpc1 grpc2 grpc3 grpc4 remoting2 remoting3 remoting4');
}

/** Its producer does not start. */
const refused = code => topic => assert.rejects(producer(topic), error => {
  assert.match(`${error.cause.cause}`, new RegExp(`response-code=${code}`));
  return true;
});

const SCENARIOS = {
  normal,
  async: async_,
  simple,
  invisible,
  fifo,
  delay,
  recall,
  transaction,
  orphan,
  retry,
  dlq: deadLetter,
  'dlq-fifo': topic => deadLetter(topic, { messageGroup: 'one' }),
  tag: filtered('a || c', 'a0 c2'),
  sql: filtered(new FilterExpression('n > 0', FilterType.SQL), 'b1 c2'),
  large,
  'wrong-type': wrongType,
  priority,
  mixed,
  unknown: refused(40402),
  refused: refused(40100),
};

async function report(argument) {
  const [ name, topic ] = argument.split('=');
  try {
    await SCENARIOS[name](topic);
    console.log(`passed ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${error.message.replaceAll('\n', ' ')}`);
    console.error(error);
  }
}

Promise.all(wanted.map(report)).then(() => process.exit(0));
