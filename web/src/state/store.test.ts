import assert from "node:assert/strict";
import { test } from "node:test";
import { formatHash, parseHash, Store } from "./store";

test("a hash that was written is read back", () => {
  for (const hash of ["#/", "#/chapter/dot?t=0.5", "#/view/head?trace=a%2Fb&text=%3Cb%3E+%26+%C3%BC"]) {
    assert.equal(formatHash(parseHash(hash)), hash);
  }
});

test("a hash that nobody wrote is the start", () => {
  for (const hash of ["", "#", "#/nowhere", "#/%E0%A4%A", "#?a=1"]) assert.equal(parseHash(hash).kind, "start");
});

test("undo takes back a step, redo does it again", () => {
  const store = new Store("#/view/head?layer=1", false);
  store.set("head", 2);
  store.set("row", 3);
  store.undo();
  assert.equal(store.hash(), "#/view/head?layer=1&head=2");
  store.undo();
  assert.equal(store.hash(), "#/view/head?layer=1");
  assert.equal(store.canUndo(), false);
  store.redo();
  store.redo();
  assert.equal(store.hash(), "#/view/head?layer=1&head=2&row=3");
  assert.equal(store.canRedo(), false);
});

test("a slider that is dragged is one step", () => {
  const store = new Store("#/chapter/softmax", false);
  for (let i = 1; i <= 20; i++) store.set("temperature", i);
  store.undo();
  assert.equal(store.get("temperature"), undefined);
});

test("a value that does not change is no step", () => {
  const store = new Store("#/view/head?head=2", false);
  store.set("head", 2);
  assert.equal(store.canUndo(), false);
});

test("another view keeps the trace and the head, not what belongs to the view", () => {
  const store = new Store("#/view/head?trace=t1&head=2&scale=log", false);
  store.go("view", "rollout");
  assert.equal(store.hash(), "#/view/rollout?trace=t1&head=2");
});

test("a value that is set and then removed is two steps", () => {
  const store = new Store("#/view/head", false);
  store.set("row", 2);
  store.set("row", undefined);
  store.undo();
  assert.equal(store.get("row"), "2");
});
